package policy

// TestResult is the judgement of one entry line of tests or sshTests.
type TestResult struct {
	Path    string   `json:"path"` // tests[4].accept[0]
	Src     string   `json:"src"`
	Dst     string   `json:"dst"`
	Proto   string   `json:"proto,omitempty"`
	Want    string   `json:"want"` // accept, drop, check
	Got     string   `json:"got"`  // accept, drop, check, invalid, undecided
	Verdict Verdict  `json:"verdict"`
	Rule    string   `json:"rule,omitempty"` // path of the rule that decided
	Missing []string `json:"missing,omitempty"`
}
