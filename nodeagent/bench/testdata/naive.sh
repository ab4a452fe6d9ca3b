#!/bin/sh
# What people do today, once at boot: one rule and one translation per peer. Arguments: the file of the peers' addresses.
while read -r peer; do
	ip rule add to "$peer/32" lookup 52 priority 100
	iptables -t nat -A POSTROUTING -s 10.244.1.0/24 -d "$peer/32" -o tailscale0 -j SNAT --to-source 100.64.0.11
done <"$1"
