package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAssertion(t *testing.T) {
	tests := []struct {
		text string
		want assertion
		err  string
	}{
		{text: "node:os == 'macos'", want: assertion{attr: "node:os", op: "==", values: []string{"macos"}}},
		{text: `node:os!="macos"`, want: assertion{attr: "node:os", op: "!=", values: []string{"macos"}}},
		{text: " node:tsVersion>='1.40' ", want: assertion{attr: "node:tsVersion", op: ">=", values: []string{"1.40"}}},
		{text: "custom:score < 4.5", want: assertion{attr: "custom:score", op: "<", values: []string{"4.5"}, number: true}},
		{text: "custom:score > -1", want: assertion{attr: "custom:score", op: ">", values: []string{"-1"}, number: true}},
		{text: "custom:score <= '4.5'", want: assertion{attr: "custom:score", op: "<=", values: []string{"4.5"}}},
		{text: "node:tsAutoUpdate == true", want: assertion{attr: "node:tsAutoUpdate", op: "==", values: []string{"true"}}},
		{text: "node:os IN ['macos', \"linux\",'ios']", want: assertion{attr: "node:os", op: "IN", values: []string{"macos", "linux", "ios"}}},
		{text: "node:os IN['macos']", want: assertion{attr: "node:os", op: "IN", values: []string{"macos"}}},
		{text: "node:os  NOT  IN ['macos']", want: assertion{attr: "node:os", op: "NOT IN", values: []string{"macos"}}},
		{text: "custom:tier IS SET", want: assertion{attr: "custom:tier", op: "IS SET"}},
		{text: "custom:tier is  set", want: assertion{attr: "custom:tier", op: "IS SET"}},
		{text: "custom:tier Not set", want: assertion{attr: "custom:tier", op: "NOT SET"}},
		{text: "node:os not in ['IN', 'in']", want: assertion{attr: "node:os", op: "NOT IN", values: []string{"IN", "in"}}},
		{text: "custom:tier NOT SET ", want: assertion{attr: "custom:tier", op: "NOT SET"}},
		{text: "node:tsAutoUpdate", want: assertion{attr: "node:tsAutoUpdate"}},
		{text: " custom:managed ", want: assertion{attr: "custom:managed"}},
		// What stands in quotes is no operator and ends no list.
		{text: "custom:note == 'this IS SET'", want: assertion{attr: "custom:note", op: "==", values: []string{"this IS SET"}}},
		{text: "custom:note != 'a >= b IN c'", want: assertion{attr: "custom:note", op: "!=", values: []string{"a >= b IN c"}}},
		{text: "custom:note IN ['a, b', 'c]']", want: assertion{attr: "custom:note", op: "IN", values: []string{"a, b", "c]"}}},
		{text: "custom:note == ''", want: assertion{attr: "custom:note", op: "==", values: []string{""}}},

		{text: "macos", err: `"macos": no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET`},
		{text: "", err: `"": no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET`},
		{text: "node:os = 'x'", err: `"node:os = 'x'": no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET`},
		{text: "node:osIN ['x']", err: `"node:osIN ['x']": no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET`},
		{text: "== 'x'", err: `"== 'x'": no attribute before "=="`},
		{text: "node:os ==", err: `"node:os ==": no value after "=="`},
		{text: "node:os == mac os", err: `"node:os == mac os": want one value after "==", a text in quotes`},
		{text: "node:os == 'x", err: `"node:os == 'x": want one value after "==", a text in quotes`},
		{text: "node:os IN 'x'", err: `"node:os IN 'x'": want a list in brackets after "IN"`},
		{text: "node:os IN ['x'", err: `"node:os IN ['x'": want a list in brackets after "IN"`},
		{text: "node:os IN ['x' 'y']", err: `"node:os IN ['x' 'y']": want a list in brackets after "IN"`},
		{text: "node:os IN []", err: `"node:os IN []": want a list in brackets after "IN"`},
		{text: "custom:a IS SET now", err: `"custom:a IS SET now": nothing may follow "IS SET"`},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := parseAssertion(tt.text)
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error %v, want %s", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(assertion{})); diff != "" {
				t.Error(diff)
			}
			if value, ok := got.example(); ok {
				if v := got.holds(map[string]string{got.attr: value}, true); v != Pass {
					t.Errorf("its own example %q does not meet it: %v", value, v)
				}
			}
		})
	}
}

func TestAssertionHolds(t *testing.T) {
	tests := []struct {
		text, value string
		want        Verdict
	}{
		{"a == 'x'", "x", Pass},
		{"a == 'x'", "X", Fail},
		{"a != 'x'", "y", Pass},
		{"a == true", "true", Pass},
		{"a IN ['x', 'y']", "y", Pass},
		{"a NOT IN ['x', 'y']", "y", Fail},
		{"node:a", "true", Pass},
		{"node:a", "false", Fail},
		{"a IS SET", "", Pass},
		{"a NOT SET", "x", Fail},
		{"a >= '1.40'", "1.40.0", Pass},
		{"a >= '1.40.0'", "1.40", Fail}, // a version that goes on comes after one that ends
		{"a < '1.40.0'", "1.40", Pass},
		{"a > '1.9'", "1.10", Pass},
		{"a > '1.09'", "1.9", Fail},
		{"a <= '13.4.0'", "13.4.0", Pass},
		{"a > '5.19.0-40'", "5.19.0-42-generic", Pass},
		{"a > '1.2a'", "1.2b", Pass},
		{"a < '18446744073709551616'", "18446744073709551615", Pass}, // more than any integer holds
		{"a > 9.25", "9.3", Pass},                                    // as numbers; as versions 25 is more than 3
		{"a > '9.25'", "9.3", Fail},
		{"a < 10", "9", Pass},
		{"a > -2", "-1", Pass},
		{"a > 9", "high", Pass}, // not a number: compared as text
	}
	for _, tt := range tests {
		a, err := parseAssertion(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.holds(map[string]string{a.attr: tt.value}, true); got != tt.want {
			t.Errorf("%s with %q: %v, want %v", tt.text, tt.value, got, tt.want)
		}
		if got := a.holds(nil, false); got != Undecided {
			t.Errorf("%s of what is not known: %v", tt.text, got)
		}
	}
	// What is not set meets nothing but NOT SET, whatever the operator.
	for _, text := range []string{"a == 'x'", "a != 'x'", "a NOT IN ['x']", "a < '9'", "a IS SET", "node:a"} {
		a, _ := parseAssertion(text)
		if got := a.holds(nil, true); got != Fail {
			t.Errorf("%s of what is not set: %v", text, got)
		}
	}
}

func TestPostureAttrsOfADevice(t *testing.T) {
	tests := []struct {
		os, version string
		want        map[string]string
	}{
		{"", "", map[string]string{}},
		{"macOS", "1.98.10-t0123abcd-g4567", map[string]string{"node:os": "macos", "node:tsVersion": "1.98.10", "node:tsReleaseTrack": "stable"}},
		{"linux", "1.99.5", map[string]string{"node:os": "linux", "node:tsVersion": "1.99.5", "node:tsReleaseTrack": "unstable"}},
		{"linux", "dev", map[string]string{"node:os": "linux", "node:tsVersion": "dev"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, postureAttrs(&device{Device: &Device{OS: tt.os, ClientVersion: tt.version}})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPosturesAskNothingOfGuests holds that devices which are shared in get through whatever their posture.
func TestPosturesAskNothingOfGuests(t *testing.T) {
	inv := sshTailnet()
	for i := range inv.Devices {
		if inv.Devices[i].OS == "" && !inv.Devices[i].IsExternal {
			inv.Devices[i].OS = "linux"
		}
	}
	const policy = `{` + sshNames + `"grants": [{"src": ["autogroup:shared", "group:dev"], "dst": ["webhost"], "ip": ["1"], "srcPosture": ["posture:win"]}]}`
	r := Check("", []byte(policy), inv, nil)
	if !r.Accepted {
		t.Fatal(r.Message)
	}
	got, err := r.Compiled.Filter("web")
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if diff := cmp.Diff([]string{"100.64.0.3", "100.64.0.9"}, got[0].SrcIPs); diff != "" {
		t.Error(diff)
	}
}

// TestPosturesAskNothingBehindRouters holds that a posture is asked of devices: what comes from behind a router passes by
// its address, as documented.
func TestPosturesAskNothingBehindRouters(t *testing.T) {
	const ok = "100.64.0.3 fd7a:115c:a1e0::3"
	inv := smallTailnet()
	for i := range inv.Devices {
		inv.Devices[i].OS = map[bool]string{true: "windows", false: "linux"}[inv.Devices[i].Hostname == "bob1"]
	}
	for _, tt := range []struct {
		name, src string
		want      string
		can       map[string]Verdict // by source, to web
	}{
		{"users", `"group:dev"`, ok, map[string]Verdict{"bob1": Pass, "ada1": Fail, "10.1.2.9": Fail}},
		{"everybody", `"*"`, "10.1.0.0/16 10.1.2.0/24 100.64.0.3 172.16.0.0/24 fd7a:115c:a1e0::3", map[string]Verdict{
			"bob1": Pass, "ada1": Fail, "10.1.2.9": Pass, "192.0.2.1": Fail, "100.64.9.9": Fail,
		}},
		{"a subnet", `"office", "192.0.2.0/24"`, "10.1.0.0/16 192.0.2.0/24", map[string]Verdict{"bob1": Fail, "10.1.2.9": Pass, "192.0.2.1": Pass}},
		{"devices by address", `"100.64.0.3", "100.64.0.1", "fd7a:115c:a1e0::1"`, "100.64.0.3", map[string]Verdict{"bob1": Pass, "ada1": Fail}},
		{"devices by network", `"100.64.0.0/10"`, "100.64.0.3", map[string]Verdict{"bob1": Pass, "ada1": Fail, "100.64.9.9": Fail}},
		{"more than the tailnet", `"100.0.0.0/8"`, "100.0.0.0/10 100.128.0.0/9 100.64.0.3", map[string]Verdict{
			"bob1": Pass, "ada1": Fail, "100.1.2.3": Pass, "100.64.9.9": Fail,
		}},
		{"anybody at all", `"autogroup:danger-all"`, ok, map[string]Verdict{"bob1": Pass, "ada1": Fail, "192.0.2.1": Fail}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("", []byte(`{`+smallNames+`"postures": {"posture:win": ["node:os == 'windows'"]},
				"grants": [{"src": [`+tt.src+`], "dst": ["tag:web"], "ip": ["1"], "srcPosture": ["posture:win"]}]}`), inv, nil)
			if !r.Accepted {
				t.Fatal(r.Message)
			}
			got, err := r.Compiled.Filter("web")
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got[0].SrcIPs, " ")); diff != "" {
				t.Error(diff)
			}
			for src, want := range tt.can {
				got, err := r.Compiled.Can(src, "100.64.0.4", "tcp", 1)
				if err != nil || got.Verdict != want {
					t.Errorf("from %s: %v %v, want %v", src, got.Verdict, err, want)
				}
			}
		})
	}
}

func TestTextAttrs(t *testing.T) {
	got := textAttrs(map[string]json.RawMessage{"a": json.RawMessage(`"x"`), "b": json.RawMessage(`4.5`), "c": json.RawMessage(`true`)})
	if diff := cmp.Diff(map[string]string{"a": "x", "b": "4.5", "c": "true"}, got); diff != "" {
		t.Error(diff)
	}
}
