#!/usr/bin/env bash
# Runs the tests of tests/lab, a Go module of its own: real tailscaled processes in network namespaces (as root), with what
# a real tofu applied, and the policy engine against Tailscale's own packet filter. What cannot be had is skipped by name;
# REQUIRE_NETNS=1 and REQUIRE_TOFU=1 make a failure of that. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/../.."

PATH=$PATH:/usr/sbin:/sbin
tests/tools/setup.sh || echo "lab.sh: going on; the tests in network namespaces will be skipped, by name" >&2
if TAILMESH_TOFU=$(tests/tools/tofu.sh --any); then
	export TAILMESH_TOFU
else
	unset TAILMESH_TOFU
	echo "lab.sh: going on without OpenTofu; the tests on it will be skipped, by name" >&2
fi
cd tests/lab
exec go test -count=1 -timeout 15m -v "$@" ./...
