package policy

import "fmt"

// Verdict is one of three answers. The zero value is invalid on purpose.
type Verdict int

// The three answers. Undecided is not a failure: it says that the inventory lacks what would be needed to tell.
const (
	Pass Verdict = iota + 1
	Fail
	Undecided
)

// String returns "pass", "fail" or "undecided".
func (v Verdict) String() string {
	switch v {
	case Pass:
		return "pass"
	case Fail:
		return "fail"
	case Undecided:
		return "undecided"
	}
	return "invalid"
}

// MarshalText gives the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a verdict's name.
func (v *Verdict) UnmarshalText(b []byte) error {
	for _, w := range []Verdict{Pass, Fail, Undecided} {
		if w.String() == string(b) {
			*v = w
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}
