package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2/maybe"
	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/report"
)

func newReportCmd(e env) *cobra.Command {
	var in inputs
	var mesh, file string
	cmd := &cobra.Command{
		Use:   "report POLICY --inventory FILE",
		Short: "Write one HTML page about a policy: who reaches whom, the mesh, tests, findings",
		Long: `report writes a page for those who review or run a policy: what the control plane would answer, who reaches whom by tag
and group with the rules behind each cell, the mesh as a drawing, requirements, tests, what lint finds, and the text of
the policy that all of these point to. The page is one file: it loads nothing, runs no script, and can be printed.

--require adds flows that must be admitted, as for check. --mesh draws the nodes of a mesh by location: a JSON object
with each node's document by node name, as the provider's node_configs, or a folder with a file of it for each node.
Without it, devices are drawn by tag.

  tofu output -json node_configs > mesh.json

The page goes to standard output, or to the file that -o names, which is replaced whole or not at all. The same input
gives the same page.

Exit codes: 0 the page is written, whatever it says (check and lint answer with their exit codes); 2 a file could not
be read or written, and then nothing is written.`,
		Example: `  tailmesh-policy report policy.hujson --inventory inventory.json -o report.html
  tailmesh-policy report policy.hujson -i inventory.json --require overlay.json --mesh mesh.json > report.html`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(_ *cobra.Command, args []string) error {
			in.policy = args[0]
			l, err := in.load(e, mesh)
			if err != nil {
				return err
			}
			page := report.Input{
				File: l.file, Source: l.src, Inventory: l.inventory, Tool: "tailmesh-policy", Version: programVersion(),
			}
			read := []string{in.policy, in.inventory, in.require}
			if mesh != "" {
				var documents []string
				if page.Mesh, documents, err = readMesh(e, mesh); err != nil {
					return err
				}
				read = append(read, documents...)
			}
			page.Report, page.Findings = l.lint()
			var out bytes.Buffer
			if err := report.Write(&out, page); err != nil {
				return err
			}
			if file == "" || file == stdinName {
				_, err := e.Stdout.Write(out.Bytes())
				return err
			}
			for _, name := range read {
				if sameFile(name, file) {
					return fmt.Errorf("-o %q would replace a file that the report is made of", file)
				}
			}
			if err := writeNew(file, out.Bytes()); err != nil {
				return fmt.Errorf("cannot write %q: %w", file, withoutPath(err))
			}
			return nil
		},
	}
	in.inventoryFlag(cmd, true)
	in.requireFlag(cmd)
	must(cmd.MarkFlagFilename("require", "json", "hujson"))
	cmd.Flags().Var((*fileName)(&mesh), "mesh", "documents of a mesh's nodes, JSON by node name or a folder of them (- is standard input)")
	must(cmd.MarkFlagFilename("mesh", "json"))
	cmd.Flags().VarP((*fileName)(&file), "output", "o", "file to write (- is standard output, the default)")
	must(cmd.MarkFlagFilename("output", "html"))
	return cmd
}

// readMesh reads the documents of a mesh's nodes, from one file or from a folder with a file for each. It names all files
// that it has read.
func readMesh(e env, name string) (mesh *report.Mesh, read []string, err error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return readMeshFolder(e, name)
	}
	text, err := readFile(e, name, maxInventory)
	if err != nil {
		return nil, nil, err
	}
	if mesh, err = report.ParseMesh(text); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", displayName(name), describeJSON(text, err))
	}
	return mesh, []string{name}, nil
}

func readMeshFolder(e env, folder string) (mesh *report.Mesh, read []string, err error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %q: %w", folder, err)
	}
	documents := map[string]string{}
	for _, f := range files {
		if f.IsDir() || filepath.Ext(f.Name()) != ".json" {
			continue
		}
		name := filepath.Join(folder, f.Name())
		text, err := readFile(e, name, maxText)
		if err != nil {
			return nil, nil, err
		}
		read = append(read, name)
		documents[f.Name()] = string(text)
	}
	if len(documents) == 0 {
		return nil, nil, fmt.Errorf("no documents in %q: want a file NAME.json for each node", folder)
	}
	all, err := json.Marshal(documents)
	if err != nil {
		return nil, nil, err
	}
	if mesh, err = report.ParseMesh(all); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", folder, err)
	}
	return mesh, read, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// writeNew writes a file that may be there already, whole or not at all. What is no regular file, such as a pipe or a link
// to what is not there yet, stays what it is and is written to.
func writeNew(file string, text []byte) error {
	_, named := os.Lstat(file)
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(named, fs.ErrNotExist):
		return maybe.WriteFile(file, text, 0o644)
	case err == nil && info.Mode().IsRegular():
		return rewrite(file, text)
	}
	return os.WriteFile(file, text, 0o644)
}
