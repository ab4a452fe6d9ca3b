#!/usr/bin/env bash
# Builds what the demo needs and runs it. Arguments go to the demo (see tests/demo).
set -euo pipefail
cd "$(dirname "$0")/../.."

PATH=$PATH:/usr/sbin:/sbin
tests/tools/setup.sh
TAILMESH_TOFU=$(tests/tools/tofu.sh --any)
export TAILMESH_TOFU
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
echo "demo.sh: building the provider, tailmesh-policy, tailmesh-agent and the demo (the first time takes a minute or two)" >&2
go build -trimpath -o "$bin/" . ./policy/cmd/tailmesh-policy ./nodeagent/cmd/tailmesh-agent ./tests/demo
"$bin/demo" -bin "$bin" "$@"
