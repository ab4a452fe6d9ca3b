//go:build linux

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// socketPath is where the imitation of tailscaled listens: in the demo's own /run.
const socketPath = "/run/tailscale/tailscaled.sock"

// startLocalAPI answers as a node's tailscaled does when it is asked who is in the tailnet, until the context ends.
func startLocalAPI(ctx context.Context, node string, devices []device) error {
	type peer struct {
		ID, HostName, DNSName string
		TailscaleIPs, Tags    []string
		Online                bool
	}
	status := struct {
		BackendState string
		Self         peer
		Peer         map[string]peer
	}{BackendState: "Running", Peer: map[string]peer{}}
	for _, d := range devices {
		p := peer{ID: d.ID, HostName: d.Name, DNSName: d.FullName + ".", TailscaleIPs: d.Addresses, Tags: d.Tags, Online: true}
		if d.Name == node {
			status.Self = p
		} else {
			status.Peer["nodekey:"+d.ID] = p
		}
	}
	if err := os.MkdirAll(filepath.Dir(socketPath), 0o755); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socketPath)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /localapi/v0/status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return nil
}
