//go:build !linux

// Command demo runs on Linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "demo: needs Linux: it makes network namespaces")
	os.Exit(2)
}
