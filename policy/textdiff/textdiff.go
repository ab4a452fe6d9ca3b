// Package textdiff compares two versions of a policy file as text: whether anything but formatting differs, in which
// sections, on which lines. What the difference means for access is accessdiff's to say.
package textdiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Same reports whether two texts differ in formatting at most (white space, trailing commas, escapes that a string does
// not need): same values with the same comments at the same places. Whether a list stands on one line or on several is
// no difference, although the control plane, which formats what it stores, keeps it.
func Same(x, y string) bool {
	if x == y {
		return true
	}
	formattedX, err := policy.Format([]byte(x))
	if err != nil {
		return false
	}
	formattedY, err := policy.Format([]byte(y))
	if err != nil {
		return false
	}
	return slices.Equal(tokens(string(formattedX)), tokens(string(formattedY)))
}

// tokens splits HuJSON that is well formed into what is not white space, without trailing commas.
func tokens(s string) []string {
	var out []string
	comma := -1 // the comma with nothing but comments behind it
	for i := 0; i < len(s); {
		end, token := i+1, ""
		switch c := s[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
			continue
		case c == '"':
			for ; s[end] != '"'; end++ {
				if s[end] == '\\' {
					end++
				}
			}
			end++
		case strings.HasPrefix(s[i:], "//"):
			if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
				end = i + n
			} else {
				end = len(s)
			}
			token = strings.Join(strings.Fields(s[i:end]), " ")
		case strings.HasPrefix(s[i:], "/*"):
			end = i + 2 + strings.Index(s[i+2:], "*/") + 2
			token = strings.Join(strings.Fields(s[i:end]), " ")
		case strings.IndexByte("{}[]:,", c) < 0:
			for end < len(s) && strings.IndexByte("{}[]:, \t\r\n/", s[end]) < 0 {
				end++
			}
		}
		if token != "" { // a comment
			out = append(out, token)
			i = end
			continue
		}
		token = s[i:end]
		if (token == "]" || token == "}") && comma >= 0 {
			out = slices.Delete(out, comma, comma+1)
		}
		comma = -1
		if token == "," {
			comma = len(out)
		}
		out = append(out, token)
		i = end
	}
	return out
}

// formatted is the text as the control plane stores it, or as it is where it is not HuJSON.
func formatted(s string) string {
	out, err := policy.Format([]byte(s))
	if err != nil {
		return s
	}
	return string(out)
}

// Lines shows the lines that differ between two policy files, both formatted alike, at most 60 of them. They are indented,
// because OpenTofu wraps what is not.
func Lines(oldName, old, newName, current string) string {
	const most = 60
	text := string(diff.Diff(oldName, []byte(formatted(old)), newName, []byte(formatted(current))))
	_, text, _ = strings.Cut(text, "\n") // the line that repeats the names as a command
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("… and %d lines more", len(lines)-most))
	}
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// Sections lists the top-level keys whose values differ.
func Sections(old, current string) []string {
	x, y := topLevel(old), topLevel(current)
	names := maps.Clone(x)
	maps.Copy(names, y)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x[name] != y[name] {
			out = append(out, name)
		}
	}
	return out
}

func topLevel(text string) map[string]string {
	out := map[string]string{}
	standard, err := hujson.Minimize([]byte(text))
	if err != nil {
		return out
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(standard, &parts) != nil {
		return out
	}
	for name, value := range parts {
		out[name] = string(value)
	}
	return out
}
