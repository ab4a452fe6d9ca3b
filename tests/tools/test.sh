#!/usr/bin/env bash
# Runs go test over the packages given, with the programs that the tests run seen to first: an OpenTofu (a build from
# source the first time) and, as root, the tools for network namespaces. What cannot be had is skipped by name.
set -euo pipefail
cd "$(dirname "$0")/../.."

PATH=$PATH:/usr/sbin:/sbin
tests/tools/setup.sh || echo "test.sh: going on; the tests in network namespaces will be skipped, by name" >&2
if TAILMESH_TOFU=$(tests/tools/tofu.sh); then
	export TAILMESH_TOFU
else
	unset TAILMESH_TOFU
	echo "test.sh: going on without OpenTofu; the tests on it will be skipped, by name" >&2
fi
echo "test.sh: go test $*  (the first run compiles for a few minutes)" >&2
exec go test -timeout 20m "$@"
