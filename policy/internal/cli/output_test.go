package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// JSON says the same of any text, and holds nothing that acts on a terminal.
func TestWriteJSON(t *testing.T) {
	for _, text := range []string{"plain", "äöü €", "\x00\x1b[2J", "\x7f", "\u0080\u009b2J", "\u202eeman", "\u2028", "\U000e0001tag", "\U0001f600", "\ufffd", `\u009b`} {
		var out bytes.Buffer
		if err := writeJSON(&out, text); err != nil {
			t.Fatal(err)
		}
		var again string
		if err := json.Unmarshal(out.Bytes(), &again); err != nil || again != text {
			t.Errorf("%q is written as %s and read as %q (%v)", text, out.String(), again, err)
		}
		if strings.ContainsAny(strings.TrimSpace(out.String()), "\x00\x1b\x7f\u0080\u009b\u202e\u2028\U000e0001") {
			t.Errorf("%q", out.String())
		}
	}
}
