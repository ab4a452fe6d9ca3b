//go:build linux

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// A document that cannot be used changes nothing, whatever is wrong with it and however it gets there: the last good one
// stays in force, is looked after, survives a restart of the agent, and the log says so once, with the reason.
func TestBadDocuments(t *testing.T) {
	const other = `"version": 1, "mesh": "futhark", "pod_cidrs": ["10.244.1.0/24"], "peers": []`
	bad := []struct{ name, text, reason string }{
		{"garbage", "\x7fELF\x02\x01\x01\x00", "invalid character"},
		{"empty", "", "the document is empty"},
		{"white space", " \n\n", "the document is empty"},
		{"truncated", nodeDocument[:len(nodeDocument)/2], "unexpected end of JSON input"},
		{"another node's", `{` + other + `, "node": {"name": "par1", "addresses": ["100.64.0.13"]}}`, `the document is for node \"par1\"`},
		{"of a later version", strings.Replace(nodeDocument, `"version": 1`, `"version": 2`, 1), "version"},
		{"an address outside the mesh", strings.Replace(nodeDocument, "100.64.0.12", "192.0.2.1", 1), "192.0.2.1"},
		{"a list", "[]", "want an object"},
		{"missing", "missing", "no document at"},
		{"a folder", "folder", "is a directory"},
	}
	// How a document takes the place of another.
	ways := map[string]func(a *agent, text string){
		"written in place": func(a *agent, text string) { a.write(text) },
		"renamed over":     func(a *agent, text string) { a.replace(text) },
		"a ConfigMap's":    func(a *agent, text string) { a.configMap(text) },
	}
	for way, put := range ways {
		t.Run(way, func(t *testing.T) {
			node := nstest.NewNode(t)
			a := newAgent(t, nodeDocument)
			if way == "a ConfigMap's" {
				a.path = filepath.Join(t.TempDir(), "node.json")
			}
			put(a, nodeDocument)
			s := startService(t, node, a)
			s.status("ok: 2 of 2")
			whole := node.Dump()
			list := bad
			if way != "renamed over" {
				list = bad[:4]
			}
			for _, doc := range list {
				logged := len(s.log.String())
				news := func() string { return s.log.String()[logged:] }
				switch doc.text {
				case "missing":
					must(t, os.Remove(a.path))
				case "folder":
					must(t, os.Remove(a.path))
					must(t, os.Mkdir(a.path, 0o755))
				default:
					put(a, doc.text)
				}
				s.status("the document cannot be used")
				node.Run("nft flush chain inet tailmesh postrouting")
				s.expect("the repair", func() bool { return node.Dump() == whole })
				if n := strings.Count(news(), "level=ERROR"); n != 1 || !strings.Contains(news(), doc.reason) ||
					!strings.Contains(news(), "the last good one stays in force") {
					t.Errorf("%s: %d errors in the log, want one, with %q:\n%s", doc.name, n, doc.reason, news())
				}
				if doc.name == "another node's" {
					s.stop()
					node.Run("nft delete table inet tailmesh")
					s = startService(t, node, a)
					s.status("the document cannot be used; by the last good one, 2 of 2")
					logged = 0
					if diff := cmp.Diff(whole, node.Dump()); diff != "" {
						t.Errorf("%s: after a restart (-want +got):\n%s", doc.name, diff)
					}
				}
				if doc.text == "folder" {
					must(t, os.Remove(a.path))
				}
				put(a, nodeDocument)
				s.status("ok: 2 of 2")
			}
			more := strings.Replace(nodeDocument, `"peers": [`, `"peers": [{"name": "par1", "addresses": ["100.64.0.13"]}, `, 1)
			put(a, more)
			s.expect("the new document", func() bool { return strings.Contains(node.Dump(), "100.64.0.12, 100.64.0.13") })
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (a *agent) replace(document string) {
	a.t.Helper()
	must(a.t, os.WriteFile(a.path+".new", []byte(document), 0o600))
	must(a.t, os.Rename(a.path+".new", a.path))
}

// configMap does what the kubelet does: the file is a link through a link that is swapped.
func (a *agent) configMap(document string) {
	a.t.Helper()
	dir := filepath.Dir(a.path)
	version, err := os.MkdirTemp(dir, "..2026")
	must(a.t, err)
	must(a.t, os.WriteFile(filepath.Join(version, filepath.Base(a.path)), []byte(document), 0o600))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(a.t, os.Symlink(filepath.Base(version), filepath.Join(dir, "..data_tmp")))
	must(a.t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old == "" {
		must(a.t, os.Symlink(filepath.Join("..data", filepath.Base(a.path)), a.path))
		return
	}
	must(a.t, os.RemoveAll(filepath.Join(dir, old)))
}

// A full disk keeps the agent from putting the document away, and from nothing else. What was put away before stays whole.
func TestFullDisk(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	state := t.TempDir()
	if err := syscall.Mount("tailmesh-test", state, "tmpfs", 0, "size=128k"); err != nil {
		nstest.Missing(t, "mounting a tmpfs: "+err.Error())
	}
	t.Cleanup(func() { must(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	s := startService(t, node, a, "--state", state)
	s.status("ok: 2 of 2")
	good := filepath.Join(state, "good.json")
	before, err := os.ReadFile(good)
	must(t, err)

	if err := os.WriteFile(filepath.Join(state, "filler"), make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full: this test proves nothing")
	}
	var peers strings.Builder
	for i := range 200 { // more than what is left in the last page
		fmt.Fprintf(&peers, `{"name": "p%d", "addresses": ["100.70.0.%d"]}, `, i, i+1)
	}
	a.replace(strings.Replace(nodeDocument, `"peers": [`, `"peers": [`+peers.String(), 1))
	s.status("wrong: 2 of 202")
	if log := s.log.String(); strings.Count(log, "could not put the document away") != 1 || !strings.Contains(log, "no space left on device") {
		t.Errorf("the log does not say that the disk is full:\n%s", log)
	}
	if after, err := os.ReadFile(good); err != nil || string(after) != string(before) {
		t.Errorf("the document that was put away is not whole any more: %v\n%s", err, after)
	}
	entries, err := os.ReadDir(state)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("something was left behind: %v", entries)
	}
	must(t, os.Remove(filepath.Join(state, "filler")))
	node.Run("nft flush chain inet tailmesh postrouting")
	s.expect("the document put away", func() bool { after, _ := os.ReadFile(good); return strings.Contains(string(after), "100.70.0.200") })
}

// A server's document is as good as a file's, and what it last was serves a start without the server.
func TestDocumentFromServer(t *testing.T) {
	document := nodeDocument
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, document) }))
	defer server.Close()
	a := newAgent(t, "")
	if got := a.want(exitYes, "validate", "--config", server.URL); got != server.URL+": valid: node ams1 of mesh futhark, 1 peer\n" {
		t.Errorf("validate: %s", got)
	}
	document = "[]"
	if _, got, _ := a.run("validate", "--config", server.URL); got != "tailmesh-agent: "+server.URL+": want an object, got an array\n" {
		t.Errorf("validate of a list: %s", got)
	}
	if _, got, code := a.run("apply", "--config", "http://192.0.2.1/x"); code != exitUnknown || !strings.Contains(got, "--config: \"http://192.0.2.1/x\" is not protected") {
		t.Errorf("a document in clear: exit code %d, %s", code, got)
	}

	document = nodeDocument
	node := nstest.NewNode(t)
	s := startService(t, node, a, "--config", server.URL)
	s.status("ok: 2 of 2")
	whole := node.Dump()
	s.stop()
	node.Run("nft delete table inet tailmesh")
	server.Close()
	s = startService(t, node, a, "--config", server.URL)
	s.status("the document cannot be used; by the last good one, 2 of 2")
	if diff := cmp.Diff(whole, node.Dump()); diff != "" {
		t.Errorf("a start without the server (-want +got):\n%s", diff)
	}
	if log := s.log.String(); !strings.Contains(log, "connection refused") || strings.Count(log, "level=ERROR") != 1 {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
}

// While the document's server is silent, the last good document is in force soon after the start, and is looked after as
// ever.
func TestServerIsSilent(t *testing.T) {
	var silent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, nodeDocument)
	}))
	defer server.Close()
	node := nstest.NewNode(t)
	a := newAgent(t, "")
	s := startService(t, node, a, "--config", server.URL)
	s.status("ok: 2 of 2")
	s.stop()
	whole, _ := parts(node.Dump())
	node.Run("nft delete table inet tailmesh")
	silent.Store(true)
	begin := time.Now()
	s = startService(t, node, a, "--config", server.URL)
	s.status("the document cannot be used; by the last good one, 2 of 2")
	for range 3 {
		node.Run("nft delete table inet tailmesh")
		s.expect("the repair", func() bool { own, _ := parts(node.Dump()); return own == whole })
	}
	s.stop()
	// A pass that waits for the server takes 15 seconds.
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("a start and three repairs took %s", took)
	}
	if log := s.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "the server does not answer in time") {
		t.Errorf("the log does not say what is wrong, once:\n%s", log)
	}
}

// A start without the document's folder holds the node to the last good document, and follows what comes in its place.
func TestFolderIsMissing(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, "")
	a.path = filepath.Join(t.TempDir(), "etc", "node.json")
	folder := filepath.Dir(a.path)
	must(t, os.Mkdir(folder, 0o755))
	a.write(nodeDocument)
	elsewhere := t.TempDir()
	begin := func() *service {
		return startService(t, node, a, "--state", elsewhere, "--lock", filepath.Join(elsewhere, "lock"))
	}
	s := begin()
	s.status("ok: 2 of 2")
	s.stop()
	whole := node.Dump()
	node.Run("nft delete table inet tailmesh")
	must(t, os.RemoveAll(folder))
	s = begin()
	s.status("the document cannot be used; by the last good one, 2 of 2")
	if diff := cmp.Diff(whole, node.Dump()); diff != "" {
		t.Errorf("a start without the folder (-want +got):\n%s", diff)
	}
	for _, address := range []string{"100.64.0.13", "100.64.0.14"} {
		must(t, os.RemoveAll(folder))
		must(t, os.Mkdir(folder, 0o755))
		a.write(strings.Replace(nodeDocument, `"peers": [`, `"peers": [{"name": "par1", "addresses": ["`+address+`"]}, `, 1))
		s.expect("the document in a new folder", func() bool { return strings.Contains(node.Dump(), "100.64.0.12, "+address) })
	}
}
