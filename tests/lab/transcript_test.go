//go:build linux

package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what pods and the doctor see into nodeagent/three-causes.md")

// causesFile shows three faults that look alike from a pod, and what the doctor says of each.
const causesFile = "../../nodeagent/three-causes.md"

// testTranscript makes the three faults that the agent is there for, one at a time, and compares what a pod and the doctor
// see with what the document says of it.
func testTranscript(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	l.install(t, l.agent())
	text, err := os.ReadFile(causesFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)

	ping := func(name string) row {
		rows := l.rows()
		i := slices.IndexFunc(rows, func(r row) bool {
			return r.name == name && r.flow.Proto == Ping && familyOf(r.flow.Dst) == 4
		})
		return rows[i]
	}
	flows := []row{ping(podToHost), ping(podToHostFull), ping(podToPod)}
	for i, cause := range []struct {
		name  string
		make  func(t *testing.T)
		asked *Node    // whose doctor sees it
		flows []string // what is expected of each
	}{
		{"nothing is wrong", func(*testing.T) {}, l.Ams, []string{direct, direct, tunneled}},
		{"the policy drops the overlay", func(t *testing.T) { l.policyFile(t, withoutOverlay) }, l.Fra, []string{direct, direct, refused}},
		{"the CNI's rule captures the route", func(t *testing.T) { l.damage(t, "ip rule del pref 0 fwmark 0x2000/0x2000") }, l.Ams, []string{tunneled, tooLarge, tunneled}},
		{"the source is a pod's", func(t *testing.T) { l.damage(t, "nft flush chain inet tailmesh postrouting") }, l.Ams, []string{foreign, foreign, tunneled}},
	} {
		t.Run(cause.name, func(t *testing.T) {
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if out, err := l.Ams.ApplyDocument(ctx, l.Document(l.Ams)); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
			l.policyFile(t, withOverlay)
			cause.make(t)
			cells := []string{cause.name}
			for i, r := range flows {
				got, seen := l.try(t.Context(), r, cause.flows[i])
				if got != cause.flows[i] {
					t.Errorf("%s: seen %q, expected %q (%v)", r.name, got, cause.flows[i], seen.Err)
				}
				cells = append(cells, map[bool]string{true: "answered", false: "lost"}[seen.OK])
			}
			doc = l.compare(t, doc, regexp.MustCompile(`(?m)^\| `+regexp.QuoteMeta(cause.name)+` \|.*$`), 0, "| "+strings.Join(cells, " | ")+" |")

			out, err := cause.asked.Agent(t.Context(), "doctor", "--config", filepath.Join(cause.asked.dir, "node.json"))
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() > 2) {
				t.Fatalf("%v\n%s", err, out)
			}
			doc = l.compare(t, doc, regexp.MustCompile("(?s)```console\n.*?\n```"), i, fmt.Sprintf("```console\n%s$ tailmesh-agent doctor\n%s\n```", cause.asked.Name, strings.TrimSpace(out)))
		})
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(causesFile, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damage does something to ams1.
func (l *Lab) damage(t *testing.T, commands string) {
	t.Helper()
	if _, err := Sh(t.Context(), l.Ams.Name, commands); err != nil {
		t.Fatal(err)
	}
}

// compare compares the i-th part of a document that matches with what is true now, but for how many were counted,
// and returns the document with that in its place.
func (l *Lab) compare(t *testing.T, doc string, part *regexp.Regexp, i int, now string) string {
	t.Helper()
	places := part.FindAllStringIndex(doc, -1)
	if len(places) <= i {
		t.Errorf("%s has no %dth place for\n%s", causesFile, i+1, now)
		return doc
	}
	count := regexp.MustCompile(`\d+ (packets|connections)`)
	begin, end := places[i][0], places[i][1]
	if diff := cmp.Diff(count.ReplaceAllString(doc[begin:end], "N $1"), count.ReplaceAllString(now, "N $1")); diff != "" && !*update {
		t.Errorf("%s is not what is seen (-document +seen; tests/tools/lab.sh -run TestLab/transcript -update writes it):\n%s", causesFile, diff)
	}
	return doc[:begin] + now + doc[end:]
}
