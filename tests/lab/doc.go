// Package lab builds a small, real tailnet with the nodes of a Kubernetes cluster on one Linux machine, so that a test
// can send packets through it and see which way they go.
//
// Each node is a network namespace in which the real tailscaled runs on a kernel TUN device, joined to a control server
// that speaks the real protocol (tailscale.com/tstest/integration/testcontrol). Pods are namespaces behind a bridge. The
// overlay is IP-in-IP, with the routes, the table and the rule that kube-router makes. The packet filters that the nodes
// get are compiled from a policy file by package policy; what keeps the nodes' routing right is tailmesh-agent.
//
// Everything lives in namespaces of the calling program's own ([Enter]) and ends with it. It is no emulation of the
// control plane: who may see whom, keys and SSH are not part of it.
//
// Layout:
//
//	underlay   172.31.250.1, fd31:250::1 (control, DERP, STUN), 172.31.250.11, fd31:250::11 (first node) ...
//	mesh       100.64.0.1, fd7a:115c:a1e0:ab12:4843:cd96:6240:1 (first node) ..., in the order of login
//	pods       10.42.1.0/24, fd00:10:42:1::/64 (first node: bridge ::1, pod ::2) ...
//	location   192.168.10.0/24 and 10.7.0.0/16, two networks behind the first node, each with a machine that has a VIP
package lab
