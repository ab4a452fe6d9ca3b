package doctor

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Redactor takes from texts what tells whose node it is: names and IDs of the mesh, its nodes and the tailnet, and
// addresses of every kind. Each is replaced by the same word or address wherever it stands, so that what belongs together
// still does: addresses by those that are set aside for benchmarks and documents (RFC 2544, RFC 3849), networks with
// their length. What everybody has, such as the range of all tailnets, stays; so do names that neither the document nor
// tailscaled tells, as in comments of firewall rules.
type Redactor struct {
	names     *regexp.Regexp // nil: no name is known
	wordOf    map[string]string
	addresses map[netip.Addr]netip.Addr
	macs      map[string]string
	counts    map[string]int
}

// NewRedactor learns the names from the evidence. Addresses are found where they stand.
func NewRedactor(e *Evidence) *Redactor {
	r := &Redactor{
		wordOf: map[string]string{}, addresses: map[netip.Addr]netip.Addr{}, macs: map[string]string{}, counts: map[string]int{},
	}
	node := func(name, id string) {
		label, tailnet, _ := strings.Cut(strings.TrimSuffix(name, "."), ".")
		r.call(label, "node")
		r.call(id, "id")
		r.call(tailnet, "tailnet")
		if host, _, ok := strings.Cut(tailnet, "."); ok {
			r.call(host, "tailnet")
		}
	}
	if d := e.Document; d != nil {
		node(d.Node.Name, d.Node.ID)
		for _, p := range d.Peers {
			node(p.Name, p.ID)
		}
		for _, n := range append([]config.Node{d.Node}, d.Peers...) {
			r.call(n.Location, "location")
		}
		r.call(d.Mesh, "mesh")
		for _, t := range d.Discover.Tags {
			r.call(strings.TrimPrefix(t, "tag:"), "tag")
		}
	}
	for _, n := range append([]TailscaleNode{e.Tailscaled.Self}, e.Tailscaled.Peers...) {
		node(n.Name, n.ID)
		for _, t := range n.Tags {
			r.call(strings.TrimPrefix(t, "tag:"), "tag")
		}
	}
	var patterns []string
	for name := range r.wordOf {
		patterns = append(patterns, regexp.QuoteMeta(name))
	}
	// A name that holds another one is found first.
	slices.SortFunc(patterns, func(a, b string) int { return len(b) - len(a) })
	if len(patterns) > 0 {
		r.names = regexp.MustCompile(`(?i)(` + strings.Join(patterns, "|") + `)`)
	}
	return r
}

// call gives a name its word: the kind and a number.
func (r *Redactor) call(name, kind string) {
	name = strings.ToLower(name)
	if _, known := r.wordOf[name]; known || name == "" {
		return
	}
	r.counts[kind]++
	r.wordOf[name] = fmt.Sprintf("%s-%d", kind, r.counts[kind])
}

// Text is a text without what tells whose it is.
func (r *Redactor) Text(text string) string {
	text = addressLike().ReplaceAllStringFunc(text, r.address)
	if r.names == nil {
		return text
	}
	var out strings.Builder
	last := 0
	for from := 0; from < len(text); {
		at := r.names.FindStringIndex(text[from:])
		if at == nil {
			break
		}
		start, end := from+at[0], r.wholeName(text, from+at[0], from+at[1])
		from = max(start+1, end)
		if end == 0 {
			continue
		}
		out.WriteString(text[last:start])
		out.WriteString(r.wordOf[strings.ToLower(text[start:end])])
		last = end
	}
	return out.String() + text[last:]
}

// wholeName returns the end of the longest name that begins at start, ends at end or before it, and is a whole word; 0 if
// there is none. A node that is called "a" is not in every word; a label of a longer name, as in tun-fra1, counts.
func (r *Redactor) wholeName(text string, start, end int) int {
	for !wordBefore(text, start) {
		if !wordAfter(text, end) {
			return end
		}
		shorter := r.names.FindStringIndex(text[start : end-1])
		if shorter == nil || shorter[0] != 0 {
			break
		}
		end = start + shorter[1]
	}
	return 0
}

func wordBefore(text string, i int) bool { return i > 0 && isWord(text[i-1]) && isWord(text[i]) }
func wordAfter(text string, i int) bool {
	return i < len(text) && isWord(text[i]) && isWord(text[i-1])
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// addressLike matches what may be a hardware address, or an address or network of either family, the last one with an
// address of IPv4 at its end too. Whether it is one is then looked at.
func addressLike() *regexp.Regexp {
	return regexp.MustCompile(`(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}` +
		`|(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?:/\d+)?` +
		`|\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?`)
}

func (r *Redactor) address(text string) string {
	trimmed, rest := text, ""
	if strings.HasSuffix(text, ":") && !strings.HasSuffix(text, "::") { // of the sentence
		trimmed, rest = text[:len(text)-1], ":"
	}
	if mac, err := net.ParseMAC(trimmed); err == nil && len(mac) == 6 {
		one := mac.String()
		if r.macs[one] == "" {
			r.macs[one] = fmt.Sprintf("02:00:00:00:%02x:%02x", (len(r.macs)+1)>>8&255, (len(r.macs)+1)&255)
		}
		return r.macs[one] + rest
	}
	plain, length, isNet := strings.Cut(trimmed, "/")
	a, err := netip.ParseAddr(plain)
	if err != nil {
		// What stands behind a colon may be one, as in "8080:10.1.2.3".
		if i := strings.LastIndexByte(text, ':'); i >= 0 && strings.Contains(text[i:], ".") {
			return text[:i+1] + r.address(text[i+1:])
		}
		return text
	}
	if isNet {
		if common(trimmed) {
			return text
		}
		return r.addr(a).String() + "/" + length + rest
	}
	return r.addr(a).String() + rest
}

// common reports whether a network is one that every node has, or every tailnet.
func common(network string) bool {
	p, err := netip.ParsePrefix(network)
	return err == nil && (p.Bits() == 0 || p == config.MeshRange4() || p == config.MeshRange6())
}

func (r *Redactor) addr(a netip.Addr) netip.Addr {
	if a.IsUnspecified() || a.IsLoopback() || a == config.MeshRange4().Addr() || a == config.MeshRange6().Addr() {
		return a
	}
	if other, ok := r.addresses[a]; ok {
		return other
	}
	n := uint32(len(r.addresses) + 1)
	other := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
	if a.Is6() && !a.Is4In6() {
		b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
		binary.BigEndian.PutUint32(b[12:], n)
		other = netip.AddrFrom16(b)
	}
	r.addresses[a] = other
	return other
}

// Report is a report without what tells whose it is.
func (r *Redactor) Report(in Report) Report {
	out := in
	out.Mesh, out.Node, out.Peers = r.Text(in.Mesh), r.Text(in.Node), r.list(in.Peers)
	out.Limits = r.questions(in.Limits)
	out.Results = slices.Clone(in.Results)
	for i := range out.Results {
		c := &out.Results[i]
		c.Detail = r.Text(c.Detail)
		c.Findings = slices.Clone(c.Findings)
		for k := range c.Findings {
			f := &c.Findings[k]
			f.Peers, f.Remote, f.Evidence = r.list(f.Peers), r.questions(f.Remote), slices.Clone(f.Evidence)
			f.Summary, f.Cause, f.Fix, f.Blind = r.Text(f.Summary), r.Text(f.Cause), r.Text(f.Fix), r.Text(f.Blind)
			f.Addresses = slices.Clone(f.Addresses)
			for n, a := range f.Addresses {
				f.Addresses[n] = r.addr(a)
			}
			for n := range f.Evidence {
				f.Evidence[n] = Seeing{r.Text(f.Evidence[n].What), r.Text(f.Evidence[n].How)}
			}
		}
	}
	return out
}

// Sections are what was gathered without what tells whose it is.
func (r *Redactor) Sections(in []Section) []Section {
	out := slices.Clone(in)
	for i := range out {
		out[i].Lines = r.list(out[i].Lines)
	}
	return out
}

func (r *Redactor) list(in []string) []string {
	out := slices.Clone(in)
	for i := range out {
		out[i] = r.Text(out[i])
	}
	return out
}

func (r *Redactor) questions(in []Question) []Question {
	out := slices.Clone(in)
	for i := range out {
		out[i] = Question{r.Text(out[i].On), r.Text(out[i].Command), r.Text(out[i].Why)}
	}
	return out
}
