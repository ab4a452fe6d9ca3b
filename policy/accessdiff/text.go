package accessdiff

import (
	"fmt"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// shownNames is how many names of one party a line shows.
const shownNames = 4

// String is the party as a line shows it: a few names, and how many more there are.
func (p Party) String() string {
	out := few(p.Names)
	if len(p.Except) > 0 {
		out += " except " + few(p.Except)
	}
	return out
}

func few(names []string) string {
	shown := make([]string, 0, shownNames)
	for _, n := range names[:min(len(names), shownNames)] {
		shown = append(shown, diag.Printable(n))
	}
	out := strings.Join(shown, ", ")
	if n := len(names) - shownNames; n > 0 {
		out += fmt.Sprintf(" and %d more", n)
	}
	return out
}

// String is the whole change in one line.
func (c Change) String() string {
	out := c.Parties() + ": " + c.What() + " (" + c.Size() + "; " + diag.Printable(c.Cause.Text) + ")"
	if c.Needs != "" {
		out += "; cannot be decided without " + diag.Printable(c.Needs)
	}
	return out
}

// Parties is who reaches whom, such as "group:eng -> tag:db".
func (c Change) Parties() string {
	if len(c.Src.Names) == 0 {
		return c.Dst.String()
	}
	return c.Src.String() + " -> " + c.Dst.String()
}

// What is what is gained or lost, such as "tcp,udp 22,443; icmp".
func (c Change) What() string {
	var out []string
	for i := 0; i < len(c.Items); i++ {
		it := c.Items[i]
		var names strings.Builder
		names.WriteString(diag.Printable(it.Name))
		// Protocols and accounts with the same detail are told in one.
		for (c.Kind == Network || c.Kind == SSH) && i+1 < len(c.Items) && c.Items[i+1].Detail == it.Detail && it.Detail+c.Items[i+1].Name != laneICMP {
			i++
			names.WriteString("," + diag.Printable(c.Items[i].Name))
		}
		out = append(out, c.Kind.text(names.String(), diag.Printable(it.Detail)))
	}
	text := strings.Join(out, "; ")
	if c.Partial {
		text += ", in part"
	}
	return text
}

func (k Kind) text(name, detail string) string {
	switch {
	case k == SSH && detail != "":
		return "ssh as " + name + " (" + short(detail) + ")"
	case k == SSH:
		return "ssh as " + name
	case k == Capability && detail != "":
		return "capability " + name + " " + short(detail)
	case k == Capability:
		return "capability " + name
	case k == Attribute:
		return strings.TrimSpace("attribute " + name + " " + short(detail))
	case k == Route && name == exitNode:
		return "approval as exit node"
	case k == Route:
		return "approval of " + name
	}
	return strings.TrimSpace(name + " " + short(detail))
}

// short cuts what no line has room for.
func short(s string) string {
	const length = 60
	if r := []rune(s); len(r) > length {
		return string(r[:length]) + "..."
	}
	return s
}

// Size is how many devices are concerned, or may be.
func (c Change) Size() string {
	dst := fmt.Sprintf("%d devices", c.Dst.Devices)
	switch {
	case c.Dst.Devices == 0 && c.Dst.Behind > 0:
		dst = "subnet"
	case c.Dst.Devices == 0:
		dst = "unknown devices"
	case c.Dst.Devices == 1 && len(c.Src.Names) == 0:
		dst = "1 device"
	}
	out := dst
	if len(c.Src.Names) > 0 {
		out = fmt.Sprintf("%d x %s", c.Src.Devices, dst)
	}
	if c.Partial {
		out = fmt.Sprintf("%d pairs of %s", c.Pairs, out)
	}
	if c.Needs != "" && (c.Dst.Devices > 0 || c.Src.Devices > 0) {
		out = "up to " + out
	}
	return out
}
