#!/bin/sh
# After an installation the service is not started: it has no document yet. After an upgrade it goes on as the new program.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart tailmesh-agent.service
