#!/bin/sh
# deb says "remove" and rpm 0 where the package goes for good; at an upgrade the service stays.
case "${1-}" in
remove | 0) ;;
*) exit 0 ;;
esac
# Without the agent nobody keeps its rules right, so that they go with it. What cannot be taken away is said and no obstacle.
if [ -d /run/systemd/system ]; then
	systemctl disable --now tailmesh-agent.service tailmesh-agent-apply.service || true
fi
tailmesh-agent cleanup || true
