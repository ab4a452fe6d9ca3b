#!/usr/bin/env bash
# Writes docs/ anew from the provider's own schema, examples/ and templates/. --check changes nothing and fails where
# docs/ is not what would be written.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=registry.terraform.io/hashicorp/tailmesh # where tfplugindocs looks

# The schema comes from the program that will read the docs' examples; tfplugindocs would download a Terraform.
tofu=$(tests/tools/tofu.sh)
go build -o "$work/terraform-provider-tailmesh" .
printf 'provider_installation {\n  dev_overrides { "tailmesh/tailmesh" = "%s" }\n}\n' "$work" >"$work/cli.tfrc"
mkdir "$work/root"
printf 'terraform {\n  required_providers {\n    tailmesh = { source = "tailmesh/tailmesh" }\n  }\n}\n' >"$work/root/main.tf"
(cd "$work/root" && TF_CLI_CONFIG_FILE=$work/cli.tfrc "$tofu" providers schema -json 2>/dev/null) |
	sed 's#registry.opentofu.org/tailmesh/tailmesh#'"$name"'#g' >"$work/schema.json"

out=docs
if [ "${1:-}" = --check ]; then
	out=$(mktemp -d -p . .docs-XXXXXX)
	trap 'rm -rf "$work" "$out"' EXIT
fi
go tool -modfile=tests/tools/go.mod tfplugindocs generate --provider-name tailmesh --providers-schema "$work/schema.json" \
	--rendered-website-dir "$out" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
if [ "${1:-}" = --check ]; then
	diff -r docs "$out" || { echo "generate.sh: docs/ is stale; run: make generate" >&2; exit 1; }
	echo "generate.sh: docs/ is what the schema says"
fi
