package sarif

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

const text = `{"acls": [{"src": ["tag:prodution"]}], "tagOwners": {"tag:production": []}}`

func find(piece string) diag.Range {
	i := strings.Index(text, piece)
	return diag.NewLines([]byte(text)).Range(i, i+len(piece))
}

func sample() diag.List {
	return diag.List{
		{
			Severity: diag.Error, Code: "unknown-tag", File: "dir/my policy.hujson", Path: "acls[0].src[0]",
			Message: "m", Range: find(`"tag:prodution"`), Label: "not in tagOwners", Notes: []string{"n"},
			Related: []diag.Related{{Message: "similar name defined here", Range: find(`"tag:production"`)}},
			Help: []diag.Help{
				{Message: "no edit"},
				{Message: "two edits", Edits: []diag.Edit{
					{Range: find("prodution"), NewText: "production"}, {Range: find(`"src": `)},
				}},
			},
		},
		{Severity: diag.Warning, Code: "another", File: "/abs/p", Message: "m", Range: find("acls")},
		{Severity: diag.Note, Code: "unknown-tag", Message: "nowhere"},
		{Severity: diag.Note, Code: "another", File: "p", Message: "of the whole file"},
	}
}

func tool() Tool {
	return Tool{Name: "t", Version: "1.2.3", URI: "https://example.com", About: func(code string) (Rule, bool) {
		return Rule{Title: "a tag that nothing defines", Help: "page"}, code == "unknown-tag"
	}}
}

func TestReportKeepsToTheSchema(t *testing.T) {
	for name, l := range map[string]diag.List{"findings": sample(), "nothing": nil} {
		if err := report(l, tool()).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a reader of the report looks at.
type (
	view struct {
		Runs []struct {
			ColumnKind string
			Tool       struct {
				Driver struct {
					Name, Version string
					Rules         []struct {
						ID               string
						ShortDescription *struct{ Text string }
					}
				}
			}
			Results []resultView
		}
	}
	resultView struct {
		RuleID           string
		RuleIndex        int
		Level            string
		Message          struct{ Text string }
		Locations        []locationView
		RelatedLocations []locationView
		Fixes            []struct {
			Description     struct{ Text string }
			ArtifactChanges []struct {
				ArtifactLocation struct{ URI string }
				Replacements     []struct {
					DeletedRegion   regionView
					InsertedContent *struct{ Text string }
				}
			}
		}
	}
	locationView struct {
		Message          *struct{ Text string }
		PhysicalLocation struct {
			ArtifactLocation struct{ URI string }
			Region           *regionView
		}
		LogicalLocations []struct{ FullyQualifiedName string }
	}
	regionView struct{ StartLine, StartColumn, EndLine, EndColumn int }
)

func TestWrite(t *testing.T) {
	var out strings.Builder
	if err := Write(&out, sample(), tool()); err != nil {
		t.Fatal(err)
	}
	var got view
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	var want view
	if err := json.Unmarshal([]byte(`{"runs": [{
		"columnKind": "unicodeCodePoints",
		"tool": {"driver": {"name": "t", "version": "1.2.3", "rules": [
			{"id": "another"},
			{"id": "unknown-tag", "shortDescription": {"text": "a tag that nothing defines"}}]}},
		"results": [
			{"ruleId": "unknown-tag", "ruleIndex": 1, "level": "error",
			 "message": {"text": "m: not in tagOwners\nnote: n\nhelp: no edit\nhelp: two edits"},
			 "locations": [{
				"physicalLocation": {"artifactLocation": {"uri": "dir/my%20policy.hujson"},
					"region": {"startLine": 1, "startColumn": 20, "endLine": 1, "endColumn": 35}},
				"logicalLocations": [{"fullyQualifiedName": "acls[0].src[0]"}]}],
			 "relatedLocations": [{"message": {"text": "similar name defined here"},
				"physicalLocation": {"artifactLocation": {"uri": "dir/my%20policy.hujson"},
					"region": {"startLine": 1, "startColumn": 54, "endLine": 1, "endColumn": 70}}}],
			 "fixes": [{"description": {"text": "two edits"}, "artifactChanges": [{
				"artifactLocation": {"uri": "dir/my%20policy.hujson"},
				"replacements": [
					{"deletedRegion": {"startLine": 1, "startColumn": 25, "endLine": 1, "endColumn": 34},
					 "insertedContent": {"text": "production"}},
					{"deletedRegion": {"startLine": 1, "startColumn": 12, "endLine": 1, "endColumn": 19}}]}]}]},
			{"ruleId": "another", "ruleIndex": 0, "level": "warning", "message": {"text": "m"},
			 "locations": [{"physicalLocation": {"artifactLocation": {"uri": "file:///abs/p"},
				"region": {"startLine": 1, "startColumn": 3, "endLine": 1, "endColumn": 7}}}],
			 "relatedLocations": [], "fixes": []},
			{"ruleId": "unknown-tag", "ruleIndex": 1, "level": "note", "message": {"text": "nowhere"},
			 "locations": [], "relatedLocations": [], "fixes": []},
			{"ruleId": "another", "ruleIndex": 0, "level": "note", "message": {"text": "of the whole file"},
			 "locations": [{"physicalLocation": {"artifactLocation": {"uri": "p"}}}],
			 "relatedLocations": [], "fixes": []}
		]}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
