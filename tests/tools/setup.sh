#!/usr/bin/env bash
# Sees that the system programs which the demo and the network tests run are there: iproute2, iptables, nftables, ping.
# As root on Debian and its kin it installs what is missing; otherwise it says the one command to run.
set -euo pipefail

# A Debian user's PATH often lacks sbin, where all of these live.
PATH=$PATH:/usr/sbin:/sbin

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need ip iproute2
need iptables iptables
need ipset ipset
need nft nftables
need ping iputils-ping
need unshare util-linux
[ ${#packages[@]} -gt 0 ] || exit 0

command="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "setup.sh: missing here: ${packages[*]}. As root, on Debian or Ubuntu: $command" >&2
	exit 2
fi
echo "setup.sh: installing ${packages[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	echo "setup.sh: installing failed; the whole log is in $log" >&2
	exit 2
fi
rm -f "$log"
