package desired

// tailscaleBypass and its mask are the mark of tailscaled's own packets, which its first rules let pass by its table
// (tsconst/linuxfw.go).
const (
	tailscaleBypass = 0x80000
	tailscaleMask   = 0xff0000
)

// tailscaleFirst is the priority of Tailscale's first rule (wgengine/router/osrouter: 5200 and 10) where the node has none;
// some systems' are elsewhere.
const tailscaleFirst = 5210

// Behind returns somebody's rule at a place behind the agent's, which is at the priority, and in front of Tailscale's, which
// lead into the table. It says no where there is no such place.
func Behind(rules []Rule, r Rule, priority, table uint32) (Rule, bool) {
	first := uint32(tailscaleFirst)
	for _, other := range rules {
		bare := !other.Src.IsValid() && !other.Dst.IsValid() && other.Iif == "" && other.Mask == 0
		if other.Family == r.Family && !other.Own() &&
			(other.Mark == tailscaleBypass && other.Mask == tailscaleMask || bare && other.Action == Lookup && other.Table == table) {
			first = other.Priority
			break
		}
	}
	if first <= priority+1 {
		return Rule{}, false
	}
	r.Priority = first - 1
	return r, true
}
