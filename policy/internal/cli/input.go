package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// stdinName is the argument that stands for standard input, and stdinFile what messages call it.
const (
	stdinName = "-"
	stdinFile = "<stdin>"
)

// inputs are the files that a command reads.
type inputs struct {
	policy    string
	inventory string
	require   string
}

var errNoInventory = errors.New("no --inventory given: what the rules admit depends on the devices")

// inventoryFlag adds --inventory; need says whether the command can do nothing without it.
func (in *inputs) inventoryFlag(cmd *cobra.Command, need bool) {
	usage := `inventory of the tailnet, JSON {"devices":[...],"users":[...]} (- is standard input)`
	cmd.Flags().VarP((*fileName)(&in.inventory), "inventory", "i", usage)
	must(cmd.MarkFlagFilename("inventory", "json"))
	if need {
		check := cmd.PreRunE
		cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
			if in.inventory == "" {
				return usageError{cmd.CommandPath(), errNoInventory}
			}
			if check != nil {
				return check(cmd, args)
			}
			return nil
		}
	}
}

// requireFlag adds --require.
func (in *inputs) requireFlag(cmd *cobra.Command) {
	cmd.Flags().Var((*fileName)(&in.require), "require", "flows that must be admitted, JSON or HuJSON (- is standard input)")
}

// fileName is a flag that names a file. An empty name, as of a variable that is not set, is not the same as no flag.
type fileName string

func (f *fileName) String() string { return string(*f) }
func (f *fileName) Type() string   { return "string" }
func (f *fileName) Set(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	*f = fileName(name)
	return nil
}

// policyArg completes policy files as the nth argument (from 0), or as every one for -1.
func policyArg(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) != n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"hujson", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// loaded is what the files held.
type loaded struct {
	file      string // name of the policy in messages
	src       []byte
	inventory *policy.Inventory // nil where none was named
	require   []policy.Requirement
}

// load reads and parses all files before anything is judged. More are those that the command will read itself.
func (in *inputs) load(e env, more ...string) (*loaded, error) {
	fromStdin := 0
	for _, name := range append(more, in.policy, in.inventory, in.require) {
		if name == stdinName {
			fromStdin++
		}
	}
	if fromStdin > 1 {
		return nil, errors.New("only one file can be read from standard input")
	}
	out := &loaded{file: displayName(in.policy)}
	var err error
	if out.src, err = readFile(e, in.policy, maxText); err != nil {
		return nil, err
	}
	if in.inventory != "" {
		if out.inventory, err = in.readInventory(e); err != nil {
			return nil, err
		}
	}
	if in.require != "" {
		text, err := readFile(e, in.require, maxText)
		if err != nil {
			return nil, err
		}
		if out.require, err = parseRequirements(text); err != nil {
			return nil, fmt.Errorf("%s: %w", displayName(in.require), describeJSON(text, err))
		}
	}
	return out, nil
}

// readInventory reads the inventory that is named.
func (in *inputs) readInventory(e env) (*policy.Inventory, error) {
	text, err := readFile(e, in.inventory, maxInventory)
	if err != nil {
		return nil, err
	}
	inv, err := policy.ParseInventory(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", displayName(in.inventory), describeJSON(text, err))
	}
	return inv, nil
}

// check judges what was loaded.
func (l *loaded) check() *policy.Report {
	return policy.Check(l.file, l.src, l.inventory, l.require)
}

func displayName(file string) string {
	if file == stdinName {
		return stdinFile
	}
	return file
}

// describeJSON says of an error in JSON where it is and what is wrong, in JSON's own words.
func describeJSON(src []byte, err error) error {
	if len(bytes.TrimSpace(src)) == 0 {
		return errors.New("the file is empty")
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: %w", textPos(src, int(wrong.Offset)-1), describeType(wrong))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%s: %w", textPos(src, int(syntax.Offset)-1), err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", textPos(src, len(src)), err)
	}
	return err
}

func textPos(src []byte, offset int) string {
	at := diag.NewLines(src).Pos(offset)
	return fmt.Sprintf("line %d, column %d", at.Line, at.Column)
}

// describeType says of a value of the wrong kind which it is and which is wanted.
func describeType(err *json.UnmarshalTypeError) error {
	want := "a number"
	switch err.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "a string"
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.Struct, reflect.Map:
		want = "an object"
	}
	got, _, _ := strings.Cut(err.Value, " ")
	keys := strings.Split(err.Field, ".")
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "" || k[0] >= 'A' && k[0] <= 'Z' }) // a struct of ours, not a key
	if len(keys) == 0 {
		return fmt.Errorf("want %s, not %s", want, withArticle(got))
	}
	return fmt.Errorf("%s: want %s, not %s", strings.Join(keys, "."), want, withArticle(got))
}

func withArticle(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}
