//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"tailscale.com/tailcfg"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/tests/lab/wire"
)

// Inventory returns the tailnet's devices as the API's device list gives them.
func (l *Lab) Inventory() *policy.Inventory {
	inv := &policy.Inventory{Users: []policy.User{
		{ID: "u1", LoginName: "admin@example.com", Role: "owner", Status: "active", Type: "member"},
	}}
	for i, n := range l.Nodes {
		d := policy.Device{
			ID: fmt.Sprint(i + 1), NodeID: n.ID, Name: n.Name + ".example.ts.net", Hostname: n.Name,
			Tags: []string{n.Tag}, Authorized: true, OS: "linux",
		}
		for _, a := range n.Addrs {
			d.Addresses = append(d.Addresses, a.String())
		}
		inv.Devices = append(inv.Devices, d)
	}
	return inv
}

// SetPolicy compiles a policy file, pushes to each node the packet filter that comes of it, and waits until it is in
// force. name is the file's, for messages.
func (l *Lab) SetPolicy(ctx context.Context, name string, src []byte) error {
	report := policy.Check(name, src, l.Inventory(), nil)
	if !report.Accepted || report.Compiled == nil {
		return fmt.Errorf("%s: %s", name, report.Message)
	}
	filters := map[netip.Addr][]tailcfg.FilterRule{}
	for _, n := range l.Nodes {
		rules, err := report.Compiled.Filter(n.Name)
		if err != nil {
			return fmt.Errorf("%s: filter of %s: %w", name, n.Name, err)
		}
		if filters[n.Addr(4)], err = wire.Decode(rules); err != nil {
			return fmt.Errorf("%s: filter of %s: %w", name, n.Name, err)
		}
	}
	l.Control.SetFilters(filters)
	for _, n := range l.Nodes {
		if err := wait(ctx, 10*time.Second, n.Name+" to have its filter", func() error {
			got, err := n.api().DebugPacketFilterRules(ctx)
			if err == nil && !reflect.DeepEqual(got, filters[n.Addr(4)]) {
				err = fmt.Errorf("it has %v", got)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
