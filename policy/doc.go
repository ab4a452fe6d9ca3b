// Package policy is an offline engine for Tailscale tailnet policy files.
package policy
