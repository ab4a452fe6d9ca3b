package cli

// lintPages are about what lint finds in a policy that is accepted.
func lintPages() []page {
	return []page{
		{
			code: "deprecated-spelling", title: "an old name for something",
			trigger: "An acl has users and ports instead of src and dst, a test user and allow instead of src and accept, a " +
				"section is spelled as in the first policies (ACLs, TagOwners), or autogroup:members stands for " +
				"autogroup:member.",
			why: "It works as the new name does, but documentation speaks of the new one, and one policy may not use " +
				"both spellings of autogroup:member.",
			fix: "Write the new name. lint --fix does it.",
		},
		{
			code: "empty-rule", title: "a rule that admits nothing",
			trigger: "No device, of the tailnet or made up for the names of the policy, is both among the sources and at a " +
				"destination: a group has no members, or a list is empty.",
			why: "The rule looks like access and gives none. Who relies on it finds out by a timeout.",
			fix: "Remove it, or fill the group or list that is empty.",
		},
		{
			code: "mesh-without-ip-in-ip", title: "a mesh whose overlay is dropped",
			trigger: "A rule lets the devices of a tag reach each other on every port, the policy shows that they carry a " +
				"network (the rule's comment speaks of an overlay or a tunnel, another rule gives them ip-in-ip, or their routes are " +
				"approved without review), and no rule admits ip-in-ip between them.",
			why: "A rule that names no protocol admits tcp, udp and icmp. IP-in-IP, which carries the overlay of some " +
				"Kubernetes networks, is dropped without a trace: the route is right, the tunnel is up, and pods cannot " +
				"reach each other.",
			fix: "In a grant add \"ip-in-ip:*\" to ip; for acls add an entry with \"proto\": \"ip-in-ip\" and port *. " +
				"Where the devices carry no such overlay, leave it.",
		},
		{
			code: "mixed-rules", title: "acls in front of grants",
			trigger: "The policy has acls and grants, and the acls stand first.",
			why: "Each device's filter has what comes of grants first. As nothing denies, no access depends on it, but who " +
				"reads a filter beside the policy is misled.",
			fix: "Put grants first, or make all of them grants: tailmesh-policy convert.",
		},
		{
			code: "no-ssh-tests", title: "rules of ssh without sshTests",
			trigger: "The policy has rules of ssh, and no sshTests.",
			why:     "The control plane refuses a change that breaks a test. Without any, a rule too many is noticed by nobody.",
			fix:     "Add sshTests: who must get in (accept, check), and above all who must not (deny).",
		},
		{
			code: "no-tests", title: "rules without tests",
			trigger: "The policy has acls or grants, and no tests.",
			why: "The control plane refuses a change that breaks a test. Without any, a rule deleted by mistake is noticed " +
				"by those who lose access, and a rule too many by nobody.",
			fix: "Add a test for each access that must stay (accept) and for each that must never be (deny).",
		},
		{
			code: "redundant-rule", title: "a rule that other rules make needless",
			trigger: "All that the rule admits, each source to each destination in each protocol and port, is admitted by " +
				"other rules together. Names are compared by what they stand for, so that it is found also where no text " +
				"is equal.",
			why: "Whoever removes the rule to take access away takes none away.",
			fix: "Remove it, or narrow the rules that admit the same if it was meant to be the only one.",
		},
		{
			code: "ssh-root-for-all", title: "everybody is let in as root",
			trigger: "A rule of ssh with the action accept and the user root has *, autogroup:member or autogroup:shared among its " +
				"sources, and reaches more than their own devices.",
			why: "One lost laptop is then root on every destination, without a question asked.",
			fix: "Name who needs it: a group; or make the action check, which asks them to log in again first.",
		},
		{
			code: "ssh-unreachable", title: "a rule of ssh that no session can use",
			trigger: "No acl or grant lets any source of the rule reach port 22 of any of its destinations.",
			why:     "ssh says who may log in, not that the packets pass. It shows as a timeout, not as a refusal.",
			fix:     "Add an acl or grant with port 22, or remove the rule.",
		},
		{
			code: "tag-without-owner", title: "a tag that nobody owns",
			trigger: "A tag has an empty list of owners.",
			why:     "Only admins can put it on a device. That may be meant, and is worth knowing.",
			fix:     "Name owners, or write \"autogroup:admin\" to say that it is meant.",
		},
		{
			code: "test-proves-nothing", title: "a test that cannot fail",
			trigger: "A line of a test has the same result whether everything is admitted or nothing, or says what another " +
				"line says; or all tests together pass with no rules at all, since they only deny.",
			why: "It looks like a guard and guards nothing.",
			fix: "Remove what is said twice. Let a test accept what must be admitted.",
		},
		{
			code: "untested-rule", title: "a rule that no test would miss",
			trigger: "The rule gives access that no other gives, and without it every test and requirement has the result " +
				"that it has now.",
			why: "It can be deleted or narrowed by mistake and everything still passes.",
			fix: "Add a test that accepts some of what the rule is for.",
		},
		{
			code: "unused-name", title: "a name that is defined and not used",
			trigger: "A group, host, ipset or posture is named nowhere else in the policy; or a tag, and no device of the " +
				"inventory bears it.",
			why: "It is a remnant, or the rule that should use it has a typing error.",
			fix: "Remove it, or use it.",
		},
		{
			code: "wide-access", title: "everybody is admitted to something sensitive",
			trigger: "The source of a rule is *, autogroup:danger-all, autogroup:shared or every address, without a " +
				"posture, and it reaches every port, or one on which machines are administered or data is kept (such as " +
				"22, 3389, 5432, 6443).",
			why: "One lost device or one shared-in guest is then enough.",
			fix: "Name who needs it: a group, a tag or autogroup:member; or ask for a posture.",
		},
	}
}
