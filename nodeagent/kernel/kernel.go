// Package kernel is the agent's narrow edge to the node's networking: it reads facts, asks for the way of a packet and
// carries out changes, over netlink alone, so that no process is ever started. What to change is decided elsewhere.
package kernel

import (
	"context"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Interface is the node's networking. [Linux] is the real one and [Fake] one for tests.
//
// An error for which [errors.Is] says [os.ErrPermission] means that the process lacks CAP_NET_ADMIN.
type Interface interface {
	// Facts reads what the node has. It never returns a part of a list: a list that changed while it was read is read
	// again.
	Facts(ctx context.Context) (desired.Facts, error)

	// Apply makes the changes in the order that [desired.Changes] names. The firewall's part is one transaction.
	Apply(ctx context.Context, c desired.Changes) error

	// Ways asks where packets would go that come in as they say, and answers each at its place. That one would go
	// nowhere is an answer, not an error.
	Ways(ctx context.Context, packets []desired.Packet) ([]desired.Answer, error)

	// DropFlows makes the kernel forget stale connections, so that their next packet begins anew, and says how many there
	// were.
	DropFlows(ctx context.Context, stale desired.Flows) (int, error)
}
