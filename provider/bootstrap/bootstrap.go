// Package bootstrap writes what makes a new machine a node of a mesh: a shell script, and a cloud-init document that
// brings and runs it. It holds no secret; the key to join with is found on the machine.
package bootstrap

import (
	_ "embed" // for the script and the unit
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"text/template"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// DefaultAuthKeyFile is where the script looks for the key to join with.
const DefaultAuthKeyFile = "/etc/tailmesh/auth-key"

// scriptPath is where cloud-init puts the script, so that it can be run again.
const scriptPath = "/usr/local/sbin/tailmesh-bootstrap"

//go:embed bootstrap.sh.tmpl
var script string

//go:embed tailmesh-agent.service
var unit string

// Node is a machine that is to become a node. Exactly one of AgentURL and AgentPath is set.
type Node struct {
	// Document is the node's document, as tailmesh_mesh writes it.
	Document string
	// AgentURL is where the machine fetches tailmesh-agent, over HTTP or HTTPS.
	AgentURL string
	// AgentPath is where the program is on the machine already, as in an image.
	AgentPath string
	// AgentSHA256 is the digest that the program must have, in lower case hexadecimal.
	AgentSHA256 string
	// AuthKeyFile is the file on the machine that holds the key to join with. Empty means DefaultAuthKeyFile.
	AuthKeyFile string
	// AuthKeyCommand is a shell command that prints the key, run on the machine where the file is not there. It may be empty.
	AuthKeyCommand string
	// UpArgs are further arguments of `tailscale up`.
	UpArgs []string
}

// Error is an error about one field of a Node, by the name that configurations have for it.
type Error struct {
	Field string
	Err   error
}

// Error says what is wrong, with the field.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong, without the field.
func (e *Error) Unwrap() error { return e.Err }

// check says what is wrong with a node, as an *Error.
func (n *Node) check() error {
	bad := func(field, format string, args ...any) error { return &Error{field, fmt.Errorf(format, args...)} }
	if _, err := config.Parse([]byte(n.Document)); err != nil {
		return &Error{"node_config", err}
	}
	if (n.AgentURL == "") == (n.AgentPath == "") {
		return &Error{"agent_url", errors.New("want either agent_url or agent_path, and not both")}
	}
	if u, err := url.Parse(n.AgentURL); n.AgentURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		return bad("agent_url", "%q: want an http or https URL", n.AgentURL)
	}
	if n.AgentPath != "" && !path.IsAbs(n.AgentPath) {
		return bad("agent_path", "%q: want an absolute path", n.AgentPath)
	}
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(n.AgentSHA256) {
		return bad("agent_sha256", "%q: want 64 hexadecimal digits, in lower case", n.AgentSHA256)
	}
	if !regexp.MustCompile(`^/[A-Za-z0-9_./-]+$`).MatchString(n.AuthKeyFile) {
		return bad("auth_key_file", "%q: want an absolute path of letters, digits and ._-/", n.AuthKeyFile)
	}
	for _, a := range n.UpArgs {
		if name := strings.TrimLeft(a, "-"); strings.HasPrefix(name, "auth-key") || strings.HasPrefix(name, "authkey") {
			return bad("tailscale_up_args", "a key would be kept in the state: leave it to auth_key_file or auth_key_command")
		}
		if strings.Contains(a, "tskey-") {
			return bad("tailscale_up_args", "an argument holds a key, which would be kept in the state")
		}
	}
	if strings.Contains(n.AuthKeyCommand, "tskey-") {
		return bad("auth_key_command", "it holds a key, which would be kept in the state")
	}
	return nil
}

// Script is the shell script for a node, for any POSIX shell.
func Script(n Node) (string, error) {
	if n.AuthKeyFile == "" {
		n.AuthKeyFile = DefaultAuthKeyFile
	}
	if err := n.check(); err != nil {
		return "", err
	}
	t, err := template.New("bootstrap").Funcs(template.FuncMap{"quote": quote}).Parse(script)
	if err != nil {
		return "", fmt.Errorf("bootstrap: %w", err)
	}
	var b strings.Builder
	err = t.Execute(&b, struct {
		Node
		Unit string
	}{n, unit})
	if err != nil {
		return "", fmt.Errorf("bootstrap: %w", err)
	}
	return b.String(), nil
}

// CloudInit is the user data that brings a script to a machine and runs it at the end of its first boot.
func CloudInit(script string) (string, error) {
	type file struct {
		Path        string `json:"path"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     string `json:"content"`
	}
	text, err := json.MarshalIndent(struct {
		Files []file     `json:"write_files"`
		Run   [][]string `json:"runcmd"`
	}{
		[]file{{scriptPath, "root:root", "0700", "b64", base64.StdEncoding.EncodeToString([]byte(script))}},
		[][]string{{"/bin/sh", scriptPath}},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("bootstrap: %w", err)
	}
	return "#cloud-config\n" + string(text) + "\n", nil // JSON is YAML
}

// quote makes one word of a text, whatever it holds, for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
