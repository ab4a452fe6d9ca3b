#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for as long as given: 30s, or 20000x for a fixed count.
set -euo pipefail
cd "$(dirname "$0")/../.."

time=${1:-30s}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | sort | while read -r file; do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "fuzz.sh: $target in $(dirname "$file") for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")"
	done
done
