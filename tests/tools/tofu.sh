#!/usr/bin/env bash
# Prints the path of an OpenTofu (or, with --any, a Terraform) that the demo and the tests can run; gets one first if
# there is none. What it says while it works goes to standard error.
#
#   tests/tools/tofu.sh          an OpenTofu
#   tests/tools/tofu.sh --any    the same, but a Terraform on PATH is taken before one is downloaded or built
#
# In this order: $TAILMESH_TOFU; tofu on PATH, 1.11 or newer; the one in the cache; (--any) terraform on PATH, 1.10 or
# newer; the signed release, where the internet is open; a build from the Go module proxy.
set -euo pipefail

version=1.12.6
here=$(cd "$(dirname "$0")" && pwd)
cache=${TAILMESH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tailmesh}/bin
cached=$cache/tofu-$version

say() { printf 'tofu.sh: %s\n' "$*" >&2; }

# at_least MIN PROGRAM: PROGRAM answers `version` with MIN or newer.
at_least() {
	local have
	have=$("$2" version 2>/dev/null | sed -n 's/^\(OpenTofu\|Terraform\) v\([0-9][0-9.]*\).*/\2/p') || return 1
	[ -n "$have" ] && [ "$(printf '%s\n%s\n' "$1" "$have" | sort -V | head -n 1)" = "$1" ]
}

if [ -n "${TAILMESH_TOFU:-}" ]; then
	[ -x "$TAILMESH_TOFU" ] || { say "TAILMESH_TOFU=$TAILMESH_TOFU cannot be run"; exit 2; }
	echo "$TAILMESH_TOFU"; exit
fi
if path=$(command -v tofu) && at_least 1.11 "$path"; then echo "$path"; exit; fi
if [ -x "$cached" ] && at_least "$version" "$cached"; then echo "$cached"; exit; fi
if [ "${1:-}" = --any ] && path=$(command -v terraform) && at_least 1.10 "$path"; then echo "$path"; exit; fi

command -v go >/dev/null || { say "needs Go 1.26 (https://go.dev/dl) to get OpenTofu, or a tofu on PATH"; exit 2; }
mkdir -p "$cache"
new=$(mktemp "$cache/.tofu-XXXXXX")
trap 'rm -f "$new"' EXIT
cd "$here/tofu"

say "no tofu 1.11 or newer here; trying the signed release of OpenTofu $version"
if go build -o "$new.dl" github.com/opentofu/tofudl/cmd/tofudl &&
	timeout 60 "$new.dl" --version "$version" --timeout 45 --output "$new" >"$new.log" 2>&1; then
	chmod 0755 "$new"
else
	say "no release to be had ($(tail -n 1 "$new.log" 2>/dev/null | cut -c 1-120))"
	say "building OpenTofu $version from source: 3 to 10 minutes, once; it is kept in $cache"
	# -v names each package as it is done; every 200th is progress enough.
	go build -v -trimpath -ldflags '-s -w -X github.com/opentofu/opentofu/version.dev=no' -o "$new" \
		github.com/opentofu/opentofu/cmd/tofu 2> >(awk '/^go: downloading|^#/ {next} NF == 1 {if (++n % 200 == 0) printf "tofu.sh: %d packages of about 1,700\n", n; next} {print}' >&2)
fi
rm -f "$new.dl" "$new.log"
at_least "$version" "$new" || { say "what came is no OpenTofu $version"; exit 2; }
mv "$new" "$cached"
say "OpenTofu $version is ready"
echo "$cached"
