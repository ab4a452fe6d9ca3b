package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tailscale "tailscale.com/client/tailscale/v2"
)

// runSim runs the command and returns what its first line exports; stop ends it and gives its exit code.
func runSim(t *testing.T, args ...string) (baseURL, apiKey string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		c := run(ctx, env{Stdin: strings.NewReader(""), Stdout: in, Stderr: &stderr, Getenv: os.Getenv}, append([]string{"sim"}, args...))
		in.Close()
		code <- c
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no line: exit %d, %s", <-code, stderr.String())
	}
	for word := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(word, "TAILSCALE_BASE_URL="); ok {
			baseURL = v
		}
		if v, ok := strings.CutPrefix(word, "TAILSCALE_API_KEY="); ok {
			apiKey = v
		}
	}
	return baseURL, apiKey, func() int { cancel(); return <-code }
}

func TestSimServesWhatItPrintsAndKeepsState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "tailnet.json")
	var etag string
	for _, round := range []string{"first", "after a restart"} {
		base, key, stop := runSim(t, "--state", state, "--api-key", "tskey-api-mine")
		u, err := url.Parse(base)
		if err != nil || u.Hostname() != "127.0.0.1" || key != "tskey-api-mine" {
			t.Fatalf("printed %q %q", base, key)
		}
		c := &tailscale.Client{BaseURL: u, APIKey: key}
		if round == "first" {
			if err := c.PolicyFile().Set(t.Context(), `{"grants": []}`, "ts-default"); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := c.PolicyFile().Raw(t.Context())
		if err != nil || etag != "" && raw.ETag != etag {
			t.Errorf("%s: %+v %v, want ETag %q", round, raw, err, etag)
		}
		etag = raw.ETag
		if code := stop(); code != exitYes {
			t.Errorf("%s: exit %d after a stop", round, code)
		}
	}
}
