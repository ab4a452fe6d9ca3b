package cli

// page tells about the code of a finding.
type page struct {
	code    string
	title   string
	trigger string // what in a policy makes it appear
	why     string // what it means for the tailnet
	fix     string // what to do
}

// pages has a page for every code that the engine uses.
func pages() []page {
	return []page{
	}
}
