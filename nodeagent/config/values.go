package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Mark is the one bit of a packet's mark by which the agent tells packets that belong to the mesh. In JSON it is a
// string, as in "0x2000".
type Mark uint32

// ParseMark reads a mark as `ip rule` writes it: hexadecimal with 0x in front, or decimal.
func ParseMark(s string) (Mark, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a mark: want a number of 32 bits such as %q", s, DefaultMark)
	}
	return Mark(n), nil
}

// String returns the mark in hexadecimal.
func (m Mark) String() string { return "0x" + strconv.FormatUint(uint64(m), 16) }

// MarshalText implements [encoding.TextMarshaler].
func (m Mark) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mark) UnmarshalText(b []byte) error {
	v, err := ParseMark(string(b))
	if err == nil {
		*m = v
	}
	return err
}

// Priority is the place of the agent's rule among the policy rules: fixed, or left to the agent. Its zero value is
// [PriorityAuto]. In JSON it is "auto" or a number.
type Priority struct {
	fixed  bool
	number int
}

// PriorityAuto leaves the place to the agent.
func PriorityAuto() Priority { return Priority{} }

// PriorityOf fixes the place.
func PriorityOf(number int) Priority { return Priority{fixed: true, number: number} }

// ParsePriority reads "auto" or a number.
func ParsePriority(s string) (Priority, error) {
	if s == "auto" {
		return PriorityAuto(), nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return Priority{}, fmt.Errorf("%q is not a priority: want \"auto\" or a number from 0 to %d", s, maxPriority)
	}
	return PriorityOf(int(n)), nil
}

// Fixed returns the number, and false when the place is left to the agent.
func (p Priority) Fixed() (number int, ok bool) { return p.number, p.fixed }

// String returns "auto" or the number.
func (p Priority) String() string {
	if !p.fixed {
		return "auto"
	}
	return strconv.Itoa(p.number)
}

// MarshalJSON implements [json.Marshaler].
func (p Priority) MarshalJSON() ([]byte, error) {
	if !p.fixed {
		return []byte(`"auto"`), nil
	}
	return []byte(strconv.Itoa(p.number)), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes a number in quotes too, because configuration languages that
// know one type per attribute write it so.
func (p *Priority) UnmarshalJSON(b []byte) error {
	text := string(b)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	v, err := ParsePriority(text)
	if err == nil {
		*p = v
	}
	return err
}
