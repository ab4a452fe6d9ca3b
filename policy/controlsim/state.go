package controlsim

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2/maybe"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// stateVersion is the version of the state file. A file of another version is refused, not guessed at.
const stateVersion = 1

//go:embed default-inventory.json
var defaultInventory []byte

// state is everything that a simulator remembers, and what the state file holds.
type state struct {
	Version    int                   `json:"version"`
	Tailnet    string                `json:"tailnet"`
	Policy     storedPolicy          `json:"policy"`
	Devices    []*Device             `json:"devices"`
	Users      []*User               `json:"users"`
	Keys       []*key                `json:"keys"`
	Settings   settings              `json:"settings"`
	Attributes map[string]attributes `json:"attributes,omitempty"` // by node ID
	NextID     int                   `json:"nextID"`
}

// storedPolicy is the policy file in force.
type storedPolicy struct {
	HuJSON string `json:"hujson"`
	// Default says that nobody has ever set the file, or that it was reset.
	Default bool `json:"default"`
}

// newState makes the state of a tailnet that starts.
func newState(opts Options) (*state, error) {
	st := &state{
		Version:    stateVersion,
		Tailnet:    DefaultTailnet,
		Policy:     storedPolicy{HuJSON: defaultPolicy, Default: true},
		Settings:   defaultSettings(),
		Attributes: map[string]attributes{},
		NextID:     1,
	}
	if opts.Tailnet != "" {
		st.Tailnet = opts.Tailnet
	}
	text := opts.Inventory
	if len(text) == 0 {
		text = defaultInventory
	}
	var inv struct {
		Devices *[]*Device `json:"devices"`
		Users   []*User    `json:"users"`
	}
	if err := json.Unmarshal(text, &inv); err != nil {
		return nil, fmt.Errorf("inventory: %w", located(text, err))
	}
	if inv.Devices == nil {
		return nil, errors.New(`inventory: no key "devices"; want {"devices":[…],"users":[…]} as the API's lists give them`)
	}
	st.Users = inv.Users
	for i, u := range st.Users {
		if u == nil || u.LoginName == "" {
			return nil, fmt.Errorf("inventory: users[%d]: no loginName", i)
		}
		u.complete(st)
	}
	for i, d := range *inv.Devices {
		if d == nil {
			return nil, fmt.Errorf("inventory: devices[%d]: null", i)
		}
		if err := st.addDevice(*d); err != nil {
			return nil, fmt.Errorf("inventory: devices[%d]: %w", i, err)
		}
	}
	return st, nil
}

// located puts line and column in front of a JSON error, which knows but an offset.
func located(text []byte, err error) error {
	offset := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = wrong.Offset
	}
	if offset < 0 || offset > int64(len(text)) {
		return err
	}
	before := text[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := max(1, len(before)-bytes.LastIndexByte(before, '\n')-1)
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// loadState reads the state file; nil where there is none yet.
func loadState(file string) (*state, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	st := &state{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err = dec.Decode(st)
	if err == nil && dec.More() {
		err = errors.New("more than one JSON document")
	}
	switch {
	case err != nil:
		err = fmt.Errorf("not a simulator's state: %w", located(text, err))
	case st.Version != stateVersion:
		err = fmt.Errorf("version %d; this program writes and reads version %d", st.Version, stateVersion)
	case st.Tailnet == "" || st.Policy.HuJSON == "":
		err = errors.New("not a simulator's state: no tailnet or no policy in it")
	}
	if err != nil {
		return nil, fmt.Errorf("state file %q: %w; it was left as it is: move it away, or name another", file, err)
	}
	if st.Attributes == nil {
		st.Attributes = map[string]attributes{}
	}
	return st, nil
}

// save writes the state file whole or not at all. It holds keys, so it is for the owner only.
func (s *Sim) save(st *state) error {
	if s.stateFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := maybe.WriteFile(s.stateFile, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// clone makes a copy that shares nothing, so that a handler that gives up midway has changed nothing.
func (st *state) clone() *state {
	text, err := json.Marshal(st)
	if err != nil {
		panic(err) // a state is plain data
	}
	next := &state{}
	if err := json.Unmarshal(text, next); err != nil {
		panic(err)
	}
	if next.Attributes == nil {
		next.Attributes = map[string]attributes{}
	}
	return next
}

// inventory is the tailnet as the policy engine wants it, through the same JSON that a user would save with curl.
func (st *state) inventory() (*policy.Inventory, error) {
	devices := make([]Device, 0, len(st.Devices))
	for _, d := range st.Devices {
		devices = append(devices, d.view(true))
	}
	text, err := json.Marshal(map[string]any{"devices": devices, "users": append([]*User{}, st.Users...)})
	if err != nil {
		return nil, err
	}
	return policy.ParseInventory(text)
}

// newID makes an ID in the style of the API's stable IDs.
func (st *state) newID(prefix string) string {
	st.NextID++
	return fmt.Sprintf("%ssim%dCNTRL", prefix, st.NextID)
}
