#!/usr/bin/env bash
# Runs the tests of tests/lab, a Go module of its own: real tailscaled processes in network namespaces (as root; skipped by
# name otherwise, a failure with REQUIRE_NETNS=1), and the policy engine against Tailscale's own packet filter. Arguments
# go to go test.
set -euo pipefail
cd "$(dirname "$0")/../.."

PATH=$PATH:/usr/sbin:/sbin
tests/tools/setup.sh || echo "lab.sh: going on; the tests in network namespaces will be skipped, by name" >&2
cd tests/lab
exec go test -count=1 -timeout 15m -v "$@" ./...
