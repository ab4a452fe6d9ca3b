package cli

// page tells about the code of a finding.
type page struct {
	code    string
	title   string
	trigger string // what in a policy makes it appear; one paragraph, as the two others
	why     string // what it means for the tailnet
	fix     string // what to do
}

// pages has a page for every code that the engine uses, by subject.
func pages() []page {
	var out []page
	for _, subject := range [][]page{textPages(), namePages(), rulePages(), sshPages(), promisePages(), lintPages()} {
		out = append(out, subject...)
	}
	return out
}

// textPages are about the text itself, before it means anything.
func textPages() []page {
	return []page{
		{
			code: "syntax", title: "the text is not HuJSON",
			trigger: "The text cannot be read as JSON with comments and trailing commas: a comma or a quote is missing, " +
				"or the file is something else.",
			why: "Nothing else can be said of the policy. The control plane refuses it with the same message.",
			fix: "Look at the caret, and at the end of the line before it, where a comma is often missing.",
		},
		{
			code: "unclosed", title: "a bracket or brace is never closed",
			trigger: "The text ends while an object or a list is still open.",
			why:     "The control plane refuses the text; half a file may have been copied.",
			fix:     "Close what is marked, in reverse order. See whether the end of the file is missing.",
		},
		{
			code: "wrong-type", title: "a value of the wrong kind",
			trigger: "A string stands where a list belongs, a list where an object belongs, and so on: " +
				"\"src\": \"tag:web\" instead of \"src\": [\"tag:web\"].",
			why: "The control plane refuses the text and does not guess what was meant.",
			fix: "Write the kind of value that the message asks for.",
		},
		{
			code: "unknown-section", title: "a top-level key that no policy has",
			trigger: "A key of the outermost object is no section of a policy file: \"grant\" instead of \"grants\".",
			why:     "Whatever stands below it has no effect, or the control plane refuses the text.",
			fix:     "Mend the spelling. Remove what belongs to another tool.",
		},
		{
			code: "unknown-field", title: "a key that does not exist there",
			trigger: "An entry has a key that entries of its section do not have. Often an entry of acls was pasted " +
				"into grants, or the other way round: acls have action, proto and dst with ports; grants have ip, " +
				"app and via.",
			why: "The control plane refuses the text: a key without effect could be a restriction that was meant.",
			fix: "Mend the spelling, or write the entry in the form of the section it stands in.",
		},
		{
			code: "duplicate-key", title: "a key given twice",
			trigger: "One object has the same key twice, or a key and its older name (src and users, dst and ports).",
			why:     "Only one of the two can have an effect, and readers disagree about which.",
			fix:     "Join the two values into one, or remove one of them.",
		},
	}
}

// namePages are about names: what they may look like, and names that nothing defines.
func namePages() []page {
	return []page{
		{
			code: "bad-name", title: "a name that is not of the form of its section",
			trigger: "A group does not start with group:, a tag not with tag: and then a letter, a posture not with " +
				"posture:, an ipset not with ipset:, or the name of a host contains @.",
			why: "The prefix is what tells the kinds of names apart in src and dst.",
			fix: "Rename it where it is defined and everywhere it is used.",
		},
		{
			code: "unknown-tag", title: "a tag that tagOwners does not have",
			trigger: "A rule, a test or a node attribute names a tag that is not a key of tagOwners.",
			why:     "No device can carry such a tag, so the rule could never match. The control plane refuses the policy.",
			fix:     "Mend the spelling, or add the tag to tagOwners: \"tag:name\": [] lets only admins assign it.",
		},
		{
			code: "unknown-group", title: "a group that groups does not have",
			trigger: "A rule names group:x, which is not a key of groups. Groups that an identity provider synchronizes " +
				"have a domain in their name (group:eng@example.com) and are not listed there.",
			why: "The rule admits nobody.",
			fix: "Mend the spelling, or define the group.",
		},
		{
			code: "unknown-host", title: "a name that is neither a host nor anything else",
			trigger: "A selector has no prefix, no @ and is no address, so it must be a name from hosts, and is not there.",
			why:     "The control plane cannot tell which address is meant. Names of devices are not selectors.",
			fix:     "Add the name to hosts with its address, or use a tag of the device.",
		},
		{
			code: "unknown-user", title: "a user that the tailnet does not have",
			trigger: "A login name is not among the users of the inventory.",
			why:     "Who is not a user has no devices, so what names the user has no effect.",
			fix:     "Mend the spelling, invite the user, or remove the name.",
		},
		{
			code: "unknown-autogroup", title: "an autogroup that does not exist",
			trigger: "The name after autogroup: is none that Tailscale defines.",
			why:     "Autogroups are built in; a policy cannot add one.",
			fix:     "Use one that exists, such as autogroup:member, autogroup:tagged or autogroup:self.",
		},
		{
			code: "unknown-ipset", title: "an ipset that ipsets does not have",
			trigger: "A rule or another ipset names ipset:x, which is not a key of ipsets.",
			why:     "The set has no addresses, so the rule means nothing.",
			fix:     "Mend the spelling, or define the set.",
		},
		{
			code: "unknown-posture", title: "a posture that postures does not have",
			trigger: "srcPosture or defaultSrcPosture names posture:x, which is not a key of postures.",
			why:     "A condition that cannot be judged admits no device.",
			fix:     "Mend the spelling, or define the posture.",
		},
		{
			code: "foreign-domain", title: "a domain that is not the tailnet's",
			trigger: "user:*@domain or localpart:*@domain names a domain that no user of the tailnet has. The comparison " +
				"is exact: capital letters count.",
			why: "Anybody can own another domain; the control plane refuses to give its users a meaning here.",
			fix: "Use a domain of the tailnet's own login names.",
		},
		{
			code: "recursive-group", title: "a group inside of a group",
			trigger: "A member of a group starts with group:.",
			why:     "Groups hold users only. The control plane refuses the policy.",
			fix:     "List the users of the inner group, or name both groups in the rule.",
		},
		{
			code: "ipset-cycle", title: "an ipset that contains itself",
			trigger: "An ipset names another one that, directly or through more of them, names the first.",
			why:     "Its addresses would have no end.",
			fix:     "Take the addresses that both need into a third set.",
		},
		{
			code: "bad-address", title: "neither an address nor a CIDR",
			trigger: "A value in hosts, a route in autoApprovers or the target of a node attribute does not parse.",
			why:     "The control plane refuses the policy.",
			fix:     "Write an IPv4 or IPv6 address, or a network such as 10.0.0.0/16.",
		},
		{
			code: "bad-principal", title: "somebody who cannot be named there",
			trigger: "An owner of a tag or an approver is neither a user, a group, an autogroup nor a tag, or a member of a group no user.",
			why:     "The control plane refuses the policy: only identities own tags or approve routes, and only users are in groups.",
			fix:     "Name a user by login name; as owner or approver a group, an autogroup or a tag will do, too.",
		},
		{
			code: "bad-ipset", title: "something that cannot be part of an ipset",
			trigger: "An entry of an ipset is neither an address, a CIDR, a range, a host nor another ipset, with add or " +
				"remove in front or alone. As a warning: a set that removes has an entry without add.",
			why: "Sets hold addresses. Tags, users and groups stand for devices, whose addresses change.",
			fix: "Name addresses, or name the tag or group in the rule itself.",
		},
		{
			code: "bad-posture", title: "a posture condition that cannot be read",
			trigger: "An entry of a posture is neither \"attribute operator value\", such as node:os == 'linux', nor an attribute that is to be true.",
			why:     "A condition that cannot be judged admits no device.",
			fix:     "Use one of ==, !=, <, <=, >, >=, IN, NOT IN, IS SET, NOT SET, and quotes around text.",
		},
	}
}

// rulePages are about acls and grants.
func rulePages() []page {
	return []page{
		{
			code: "bad-action", title: "an action that the section does not have",
			trigger: "The action of an acl is not accept, or that of an ssh rule neither accept nor check. Case counts.",
			why:     "There are no deny rules: what no rule accepts is denied.",
			fix:     "To take access away, narrow the rule that gives it.",
		},
		{
			code: "bad-selector", title: "a selector that cannot stand on that side",
			trigger: "autogroup:self, autogroup:internet or a service is used as src, autogroup:danger-all or autogroup:shared as dst, a range of " +
				"addresses as either, an autogroup as src of sshTests, and so on.",
			why: "The control plane refuses the policy.",
			fix: "Move the selector to the other side, or name who is meant; a range of addresses goes into an ipset.",
		},
		{
			code: "bad-self", title: "autogroup:self with a source that has no own devices",
			trigger: "The dst is autogroup:self and a src is a tag, an address, a host, or in a grant *.",
			why: "autogroup:self means \"the devices of the user who asks\"; a tagged device or an address has no user. " +
				"One such src spoils the whole rule.",
			fix: "Use users, groups or autogroup:member as src, and a rule of its own for the rest.",
		},
		{
			code: "bad-proto", title: "a protocol that does not exist",
			trigger: "proto is neither a name that Tailscale knows nor a number from 1 to 255.",
			why:     "The control plane refuses the policy.",
			fix:     "Use a name such as tcp, udp, icmp, ip-in-ip or gre, or the protocol's number as a string.",
		},
		{
			code: "bad-ports", title: "ports that cannot be read",
			trigger: "A port is no number, is 0 or above 65535, a range runs backwards, or the dst of an acl has no ports.",
			why:     "The control plane refuses the policy.",
			fix:     "Write 22, 80-443, 22,80,443 (in acls) or * for all.",
		},
		{
			code: "port-not-protocol", title: "a port where a protocol was probably meant",
			trigger: "An entry of a grant's ip has no colon: \"icmp\", or \"4\". Without a colon it is a port of tcp and udp.",
			why: "\"icmp\" is refused. \"4\" is accepted and opens port 4, not IP protocol 4: the traffic that was meant " +
				"stays blocked, silently.",
			fix: "Write the protocol, a colon and *: \"icmp:*\", \"ip-in-ip:*\".",
		},
		{
			code: "port-on-portless", title: "a port for a protocol that has none",
			trigger: "A rule for a protocol other than tcp, udp and sctp names a port.",
			why:     "Packets of such a protocol carry no port, so the rule could never match.",
			fix:     "Write * for the ports.",
		},
		{
			code: "empty-grant", title: "a grant that grants nothing",
			trigger: "A grant has neither ip nor app, or both are empty.",
			why:     "The control plane refuses the policy.",
			fix:     "Add \"ip\" with what may pass, [\"*\"] for all of tcp, udp and icmp, or remove the grant.",
		},
		{
			code: "whole-internet", title: "a default route as destination",
			trigger: "The dst of a grant is 0.0.0.0/0 or ::/0.",
			why:     "It could mean every device or the internet through an exit node. The control plane refuses it.",
			fix:     "Use * for every device and subnet, or autogroup:internet for exit nodes.",
		},
		{
			code: "app-internet", title: "an application capability for the internet or a role",
			trigger: "A grant has app and the dst autogroup:internet, or an autogroup of a role such as autogroup:admin.",
			why:     "The control plane refuses the policy. Capabilities are read by the device that is reached; on the internet nobody reads them.",
			fix:     "Give the app part a grant of its own, with devices as dst.",
		},
		{
			code: "bad-capability", title: "the name of a capability that cannot be granted",
			trigger: "A key of app is not domain/path, has a scheme such as https://, or is one of tailscale.com's own " +
				"that a policy may not grant.",
			why: "The control plane refuses the policy.",
			fix: "Use a domain of yours, or one of the capabilities that Tailscale documents for grants.",
		},
		{
			code: "bad-via", title: "via that is not a tag",
			trigger: "An entry of via is something else than a tag.",
			why:     "via names the routers that traffic goes through, and routers are known by their tags.",
			fix:     "Give the routers a tag and name it.",
		},
	}
}

// sshPages are about ssh and node attributes.
func sshPages() []page {
	return []page{
		{
			code: "no-ssh-users", title: "an ssh rule without users",
			trigger: "users of an ssh rule is missing, null or empty.",
			why:     "The rule says nothing about which accounts may be used. The control plane refuses the policy.",
			fix:     "Name accounts, or \"autogroup:nonroot\" for all but root.",
		},
		{
			code: "bad-ssh-user", title: "a user that an ssh rule cannot name",
			trigger: "An entry of users is * or empty.",
			why:     "The control plane refuses the policy: * would include root.",
			fix:     "Use \"autogroup:nonroot\", and \"root\" beside it where root is meant.",
		},
		{
			code: "literal-ssh-user", title: "a selector taken as the name of an account",
			trigger: "An entry of users looks like a selector (group:x, tag:x, an autogroup other than nonroot, an incomplete " +
				"localpart), where names of accounts on the destination belong.",
			why: "The control plane accepts it and takes it as it is written. No account has that name, so the entry " +
				"admits nobody.",
			fix: "Name accounts, autogroup:nonroot, or localpart:*@example.com for accounts named like the login.",
		},
		{
			code: "bad-ssh-end", title: "an ssh rule from or to what has no SSH",
			trigger: "The src of an ssh rule is a host, an address or *, or the dst something else than a tag, a user, " +
				"autogroup:tagged or autogroup:self.",
			why: "SSH by identity needs to know who asks and whose device is asked.",
			fix: "Use users, groups, tags or autogroups as src, and tags, autogroup:tagged or autogroup:self as dst.",
		},
		{
			code: "bad-accept-env", title: "an empty name in acceptEnv",
			trigger: "An entry of acceptEnv is the empty string.",
			why:     "The control plane refuses the policy.",
			fix:     "Name environment variables, with * and ? as wildcards, or remove the entry.",
		},
		{
			code: "bad-check-period", title: "a checkPeriod that cannot be used",
			trigger: "checkPeriod is no duration, negative or above a week (168h), or stands in a rule whose action is " +
				"accept, where it means nothing.",
			why: "The control plane refuses the policy, or ignores the period.",
			fix: "Write a duration such as \"12h\", or \"always\"; with action accept remove it.",
		},
		{
			code: "bad-ssh-test-dst", title: "an sshTests dst that is no device",
			trigger: "A dst in sshTests is a CIDR, an ipset, * or an autogroup other than autogroup:self.",
			why:     "The control plane refuses the policy: nobody logs in to a network.",
			fix:     "Name a tag, a user, a host or an address.",
		},
		{
			code: "bad-target", title: "a node attribute for what is no device",
			trigger: "The target of a node attribute is neither *, a user, a group, a tag, an autogroup of users, a host nor " +
				"an address.",
			why: "The control plane refuses the policy; with autogroup:self it answers \"internal server error\".",
			fix: "Name who gets the attribute. autogroup:member stands for all devices of users.",
		},
		{
			code: "bad-ip-pool", title: "an ipPool that devices cannot have addresses from",
			trigger: "An entry of ipPool is no CIDR, lies outside of 100.64.0.0/10, or within a range that is reserved.",
			why:     "The control plane refuses the policy.",
			fix:     "Choose a network within 100.64.0.0/10, clear of 100.100.0.0/24, 100.100.100.0/24 and 100.115.92.0/23.",
		},
	}
}

// promisePages are about what the policy or its user promised: tests and requirements.
func promisePages() []page {
	return []page{
		{
			code: "test-failed", title: "a test of the policy fails",
			trigger: "A line of tests or sshTests wants what the rules do not give.",
			why: "The control plane refuses the whole policy with \"test(s) failed\" and does not say which. Where a src " +
				"stands for several devices, all of them must be admitted for accept, and none for deny.",
			fix: "Mend the rule or the test. tailmesh-policy test shows the rule that decided; explain SRC DST shows " +
				"every rule that comes near.",
		},
		{
			code: "test-undecided", title: "a test that cannot be decided",
			trigger: "The outcome depends on what is not known: devices without an inventory, a group that an identity " +
				"provider synchronizes, a posture attribute that the inventory lacks.",
			why: "The control plane knows, and refuses the policy if the test fails.",
			fix: "Give --inventory. For postures, give the test srcPostureAttrs.",
		},
		{
			code: "invalid-test", title: "a test that the control plane cannot run",
			trigger: "A test has no src, neither accept nor deny, or a dst that is not one host and one port by number: " +
				"a port list, a range, *, a CIDR, autogroup:internet; or an IPv4 address is asked about an IPv6 one. " +
				"As a warning: it names an autogroup, which the documentation of tests does not list.",
			why: "The control plane counts it as failed and refuses the policy, even where the rules say just that.",
			fix: "Name one user, host or tag and one port. For a protocol without ports name port 0: \"tag:node:0\".",
		},
		{
			code: "requirement-unmet", title: "a flow that must be admitted is not",
			trigger: "A requirement (--require, or those of the provider's mesh) names traffic that the rules drop between " +
				"at least one pair of devices.",
			why: "The control plane accepts the policy and the traffic vanishes without a trace: the route is right " +
				"and the tunnel is up. A rule without a protocol admits tcp, udp and icmp. IP-in-IP, which carries " +
				"the overlay of some Kubernetes networks, passes only by a rule that names it and all ports.",
			fix: "Add what the help shows. In grants that is \"ip-in-ip:*\" in ip; in acls an entry with " +
				"\"proto\": \"ip-in-ip\" and dst with port *.",
		},
		{
			code: "requirement-undecided", title: "a requirement that cannot be judged",
			trigger: "Which devices the requirement is about, or whether a rule admits them, depends on what is not known: " +
				"there is no inventory, or a group is synchronized by an identity provider.",
			why: "It is no promise kept until it is judged.",
			fix: "Give --inventory, and name tags instead of synchronized groups.",
		},
		{
			code: "device-not-ready", title: "a requirement about devices that no policy can help",
			trigger: "A device that the requirement names has not been authorized, or it blocks incoming connections.",
			why: "The first is no part of the tailnet yet and of no pair that is judged; the second refuses what the policy " +
				"admits. The requirement can pass, and packets can be lost all the same.",
			fix: "Authorize the device; turn off \"block incoming connections\" (tailscale set --shields-up=false) on the other.",
		},
		{
			code: "invalid-requirement", title: "a requirement that no policy could meet",
			trigger: "A requirement names a tag, group or host that the policy does not have, or two ends without a common " +
				"address family.",
			why: "It would never be met, or be met by accident.",
			fix: "Mend the requirement, or define the name in the policy.",
		},
	}
}
