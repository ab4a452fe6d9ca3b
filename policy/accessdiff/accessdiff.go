// Package accessdiff compares two tailnet policies by what they let through, not by their text: which access is gained,
// which is lost, and which edits change nothing.
//
// Access is a set: of source address, destination device and address, protocol and port, and beside the network of
// capabilities, ssh accounts, node attributes and routes that are approved without review. Both policies are reduced to
// the devices of one inventory, as the control plane reduces them, and the sets are subtracted exactly. Then what is left
// is folded back to the names that the user wrote, one line for what one rule does, with the edit that is the cause.
//
//	gather    both policies -> pieces (one rule, its sources, what it lets through) and where each lands
//	classify  devices on which the same pieces land are one class: nothing is done device by device
//	compare   per class, destination and protocol: the sources that only one side admits
//	fold      differences -> Changes with names; edits -> causes
//
// What depends on what the inventory does not hold (members of a group synced from an identity provider, a posture
// attribute, the hosts of a service) is never guessed: it is compared condition by condition, and what differs under a
// condition is a change of its own list, Undecided.
package accessdiff

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Kind is a kind of access.
type Kind string

// The kinds, in the order in which changes are listed.
const (
	Network    Kind = "network"
	SSH        Kind = "ssh"
	Capability Kind = "capability"
	Attribute  Kind = "attribute"
	Route      Kind = "route"
)

// Result is the difference between two policies.
type Result struct {
	Gained []Change `json:"gained"`
	Lost   []Change `json:"lost"`
	// Undecided are changes that depend on what the inventory does not tell; each says which way it would go.
	Undecided []Change `json:"undecided"`
	// Edited are the edits that change nobody's access.
	Edited []Edit `json:"edited"`

	// Named reports whether any name of either policy's rules stands for a device of the inventory. Where none does, the
	// inventory is hardly that of the policies' tailnet.
	Named bool `json:"-"`
}

// Change is access that one rule gives or gave, between the same two parties.
type Change struct {
	Kind Kind `json:"kind"`
	// Effect is "gained" or "lost"; of an undecided change, what it would be if Needs holds or does not hold.
	Effect string `json:"effect"`
	// Src has no names for attributes and routes, which have no sources.
	Src Party `json:"src,omitzero"`
	Dst Party `json:"dst"`
	// Items are what is gained or lost: protocols with ports, ssh accounts, capabilities, attributes or routes.
	Items []Item `json:"items"`
	// Partial says that not each source gains or loses each item at each destination: some had, or keep, part of it by
	// other rules. Pairs is exact.
	Partial bool `json:"partial,omitempty"`
	// Pairs counts the ordered pairs of a source device and a destination device between which anything changes; for
	// attributes and routes the devices.
	Pairs int    `json:"pairs"`
	Cause Cause  `json:"cause"`
	Needs string `json:"needs,omitempty"` // what would have to be known

	parts []part
}

// part is a piece of a change as the comparison found it.
type part struct {
	key  factKey
	fact fact
}

// Party is one end of a change.
type Party struct {
	// Names stand for the addresses exactly: selectors of the policy, host names of devices, addresses. Of an undecided
	// change it may be a group whose members are not known; Devices then counts those that may be theirs.
	Names []string `json:"names"`
	// Except are names whose addresses are not meant.
	Except  []string `json:"except,omitempty"`
	Devices int      `json:"devices"`
	// Behind counts the addresses and networks meant that are not devices' own but behind routers.
	Behind int `json:"behind,omitempty"`
}

// Item is one thing that is gained or lost.
type Item struct {
	Name   string `json:"name"`             // "tcp", "root", "tailscale.com/cap/webui", "funnel", "10.0.0.0/8"
	Detail string `json:"detail,omitempty"` // ports such as "22,80-443" or "*", how ssh checks, a capability's value
}

// Cause is the edit that a change is due to.
type Cause struct {
	// Rule is the path of the rule that gives the access in the new policy, or gave it in the old one.
	Rule string `json:"rule"`
	Text string `json:"text"` // such as `grants[3].ip "443" -> "*"`
	// File says in which policy Range is: "old" or "new".
	File  string     `json:"file"`
	Range diag.Range `json:"range,omitzero"`
}

// Edit is an edit that changes nobody's access.
type Edit struct {
	Path string `json:"path"`
	What string `json:"what"`
}

func (e Edit) String() string { return e.Path + " " + e.What }

// Differs reports whether any access surely differs.
func (r *Result) Differs() bool { return len(r.Gained)+len(r.Lost) > 0 }

// Lines returns what is gained and what is lost as text, a line for each change, in an order that depends only on the
// policies and the inventory. Undecided changes are among them and say so.
func (r *Result) Lines() (gained, lost []string) {
	gained, lost = []string{}, []string{}
	for _, l := range [][]Change{r.Gained, r.Lost, r.Undecided} {
		for i := range l {
			if l[i].Effect == lostText {
				lost = append(lost, l[i].String())
			} else {
				gained = append(gained, l[i].String())
			}
		}
	}
	return gained, lost
}

const (
	gainedText = "gained"
	lostText   = "lost"
)

// ErrNoInventory is returned where there is nothing to reduce the policies to.
var ErrNoInventory = errors.New("what the rules admit depends on devices, and no inventory is given")

// Compare compares two policies that were checked against the same inventory.
func Compare(old, new *policy.Report) (*Result, error) {
	k, err := comparison(old, new)
	if err != nil {
		return nil, err
	}
	return newFolder(k).result(), nil
}

func comparison(old, new *policy.Report) (*comparer, error) {
	sides := [2]*side{{name: "old", report: old}, {name: "new", report: new}}
	for _, s := range sides {
		if s.report.Compiled == nil {
			return nil, fmt.Errorf("the %s policy would be refused with %d: %s", s.name, s.report.Status, s.report.Message)
		}
		s.access = s.report.Compiled.Access()
		if !s.access.Known() {
			return nil, ErrNoInventory
		}
	}
	devices := sides[0].access.Devices()
	if !same(devices, sides[1].access.Devices()) {
		return nil, errors.New("the two policies were checked against different inventories")
	}
	return compare(gather(newWorld(devices), sides[0], sides[1]), sides), nil
}

// same compares inventories as far as rules see them.
func same(a, b []policy.AccessDevice) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || len(a[i].Addrs) != len(b[i].Addrs) || a[i].Owner != b[i].Owner ||
			strings.Join(a[i].Tags, " ") != strings.Join(b[i].Tags, " ") || len(a[i].Forwards) != len(b[i].Forwards) {
			return false
		}
		for j := range a[i].Addrs {
			if a[i].Addrs[j] != b[i].Addrs[j] {
				return false
			}
		}
	}
	return true
}
