package accessdiff

import "slices"

// named reports whether any rule names somebody.
func (f *folder) named() bool {
	if len(f.devices) == 0 {
		return false
	}
	for _, s := range f.sides {
		p := s.report.Policy
		if p.ACLs == nil && p.Grants == nil || s.nobody() {
			return true
		}
		for i := range p.Grants {
			if s.knows(f.world, p.Grants[i].Src.Values()) || s.knows(f.world, p.Grants[i].Dst.Values()) {
				return true
			}
		}
		for i := range p.ACLs {
			if s.knows(f.world, p.ACLs[i].Src.Values()) || s.knows(f.world, hosts(p.ACLs[i].Dst)) {
				return true
			}
		}
		for i := range p.SSH {
			if s.knows(f.world, trimmed(p.SSH[i].Src)) || s.knows(f.world, trimmed(p.SSH[i].Dst)) {
				return true
			}
		}
		for i := range p.NodeAttrs {
			if s.knows(f.world, p.NodeAttrs[i].Target.Values()) {
				return true
			}
		}
	}
	return false
}

// nobody reports whether the policy has no rules that could name anybody.
func (s *side) nobody() bool {
	p := s.report.Policy
	return len(p.ACLs)+len(p.Grants)+len(p.SSH)+len(p.NodeAttrs) == 0
}

// knows reports whether one of the selectors stands for a device.
func (s *side) knows(w *world, selectors []string) bool {
	for _, sel := range selectors {
		switch sel {
		case "*", autogroupSelf, "autogroup:internet":
			return true
		}
		src := s.access.Select(sel)
		if len(src.Unknown) > 0 {
			return true
		}
		for _, t := range src.IPs {
			if _, own := w.byText[t]; own || t == "*" {
				return true
			}
			for _, r := range w.parse(t) {
				if slices.ContainsFunc(w.addrs, r.Contains) {
					return true
				}
				for i := range w.devices {
					for _, b := range w.devices[i].Forwards {
						if b.Overlaps(r) {
							return true
						}
					}
				}
			}
		}
	}
	return false
}
