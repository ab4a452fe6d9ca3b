// Package policy is an offline engine for Tailscale tailnet policy files: what would the control plane say to this text,
// what would each device's packet filter be, may this flow pass, and if not, what text is missing.
//
// One call does everything:
//
//	Parse     text (HuJSON)       -> Policy, each part with its place in the text; wrong shapes are findings
//	validate  Policy              -> findings, the control plane's own answer among them
//	compile   Policy + Inventory  -> Compiled: rules with resolved ends, found by index from a device
//	judge     Compiled + flow     -> a Verdict and the rule that decided: tests, requirements, Can
//
// Check runs them all and returns a Report. Everything is a pure function of the arguments: no network, no clock, no
// state between calls, and the same input gives the same output whatever the order of an inventory.
//
// The engine was learned from recorded answers of the real control plane, which TestCaptures replays. Where it words a
// refusal as the control plane does, the text is the message of a finding, so that it can be searched for; the place,
// the code, the label and the ways out are ours. What recordings do not show is decided on the safe side and said in
// the documentation of the function that decides it:
//
//   - A key given twice is refused; a JSON reader would keep one and drop the other without a word.
//   - A top-level section that the engine does not know is a warning, not a refusal: the service gains sections faster
//     than this package. Unknown keys inside a section are refused.
//   - An undefined group, host or autogroup in a rule is refused, as the documentation of grants says; the words are ours
//     where nobody has quoted the service's.
//   - Which selector may stand where follows the documentation's tables of targets and selectors, so far as no recording
//     contradicts them, as it does for users.
//   - A group as src of an entry of sshTests is each of its members, as documented. Users report that the service fails
//     such entries (https://github.com/tailscale/tailscale/issues/11790): a member by name is sure to work in both.
//   - A test whose src or dst stands for several devices passes only where all of them agree.
//   - An autogroup in a test is judged, with a warning: the documentation does not list it, and users report that the
//     service does not know it there (https://github.com/tailscale/tailscale/issues/12370).
//   - autogroup:internet and public addresses reach the devices that are approved as exit nodes. No recording has such a
//     device together with such a rule; a node forwards only what its filter admits, so the ranges have to be there.
//   - A posture is asked of the tailnet's own devices alone, as documented: what is shared in or behind a router passes by
//     its address. A filter shows such sources less what is the tailnet's.
//   - A grant with via and dst "*" opens everything behind the named routers.
//   - Attributes leave addresses as the inventory has them: disable-ipv4 takes none away.
//
// Three answers are kept apart: Pass, Fail, and Undecided where the inventory lacks what would be needed to tell, such
// as the members of a group synced from an identity provider or an attribute that a posture asks for.
//
// The package is not for talking to a tailnet, for reading a device's live filter, or for evaluating policies of other
// control servers.
package policy
