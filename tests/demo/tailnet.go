//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tailnet is a running simulator of the control plane.
type tailnet struct {
	s   *story
	url string
	key string
}

// startTailnet starts tailmesh-policy sim, which ends with the context.
func startTailnet(ctx context.Context, s *story, program, inventory string) (*tailnet, error) {
	s.say("$ tailmesh-policy sim --inventory %s", filepath.Base(inventory))
	logFile, err := os.Create(filepath.Join(s.logs, "sim.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "sim", "--inventory", inventory)
	cmd.Stderr = logFile
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	wait := func() { _ = cmd.Wait() }
	if err != nil {
		wait()
		text, _ := os.ReadFile(logFile.Name())
		return nil, fmt.Errorf("tailmesh-policy sim did not start: %s", strings.TrimSpace(string(text)))
	}
	go wait()
	s.show(strings.TrimSpace(line))
	t := &tailnet{s: s}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "TAILSCALE_BASE_URL":
			t.url = value
		case "TAILSCALE_API_KEY":
			t.key = value
		}
	}
	if t.url == "" || t.key == "" {
		return nil, fmt.Errorf("tailmesh-policy sim did not say where it is: %q", line)
	}
	return t, nil
}

// device is a device of the tailnet, as the API gives it.
type device struct {
	ID        string   `json:"nodeId"`
	Name      string   `json:"hostname"`
	FullName  string   `json:"name"`
	Addresses []string `json:"addresses"`
	Tags      []string `json:"tags,omitempty"`
}

// policyFile is the policy file in force.
type policyFile struct {
	Text string `json:"text"`
	ETag string `json:"etag"`
}

// get reads a path of the simulator's API.
func (t *tailnet) get(ctx context.Context, path string) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+path, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+t.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return body, resp.Header, err
}

func (t *tailnet) devices(ctx context.Context) ([]device, error) {
	body, _, err := t.get(ctx, "/api/v2/tailnet/-/devices")
	if err != nil {
		return nil, err
	}
	var list struct{ Devices []device }
	return list.Devices, json.Unmarshal(body, &list)
}

func (t *tailnet) policy(ctx context.Context) (policyFile, error) {
	body, header, err := t.get(ctx, "/api/v2/tailnet/-/acl")
	if err == nil && header.Get("ETag") == "" {
		err = errors.New("the policy file came without an ETag")
	}
	return policyFile{Text: string(body), ETag: header.Get("ETag")}, err
}

// writes counts the requests that wrote the policy file or tried to.
func (t *tailnet) writes(ctx context.Context) (int, error) {
	body, _, err := t.get(ctx, "/sim/requests")
	if err != nil {
		return 0, err
	}
	var log struct {
		Requests []struct{ Method, Path string }
	}
	if err := json.Unmarshal(body, &log); err != nil {
		return 0, fmt.Errorf("the simulator's request log: %w", err)
	}
	n := 0
	for _, r := range log.Requests {
		if r.Method != http.MethodGet && strings.HasSuffix(r.Path, "/acl") {
			n++
		}
	}
	return n, nil
}
