package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// usedCodes reads the source of the engine and of lint for the codes that it gives to findings: literals for a field Code, and
// literals that are passed for a parameter named code. A code that is neither a literal nor such a parameter is an error.
func usedCodes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of the engine: %v", err)
	}
	more, err := filepath.Glob("../../lint/*.go")
	if err != nil || len(more) == 0 {
		t.Fatalf("no source of lint: %v", err)
	}
	files = append(files, more...)
	fset := token.NewFileSet()
	var parsed []*ast.File
	position := make(map[string]int) // of the parameter code, by name of the function
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				i := 0
				for _, field := range fn.Type.Params.List {
					for _, name := range field.Names {
						if name.Name == "code" {
							position[fn.Name.Name] = i
						}
						i++
					}
				}
			}
		}
	}
	used := make(map[string]bool)
	take := func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.BasicLit:
			code, err := strconv.Unquote(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			used[code] = true
		case *ast.Ident:
			if e.Name == "code" {
				return // the parameter, taken where it is passed
			}
			t.Errorf("%s: cannot tell which code %s is", fset.Position(e.Pos()), e.Name)
		default:
			t.Errorf("%s: cannot tell which code this is", fset.Position(e.Pos()))
		}
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
					take(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if field, ok := left.(*ast.SelectorExpr); ok && field.Sel.Name == "Code" && i < len(n.Rhs) {
						take(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				name := ""
				switch fn := n.Fun.(type) {
				case *ast.Ident:
					name = fn.Name
				case *ast.SelectorExpr:
					name = fn.Sel.Name
				}
				if i, ok := position[name]; ok && i < len(n.Args) {
					take(n.Args[i])
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(used))
}

func TestEveryCodeHasAPage(t *testing.T) {
	used := usedCodes(t)
	if !slices.Contains(used, "unknown-tag") {
		t.Fatalf("the source of the engine was read wrongly: %q", used)
	}
	if diff := cmp.Diff(used, codes()); diff != "" {
		t.Errorf("codes (-used by the engine +explained):\n%s", diff)
		t.Logf("used: %q", used)
	}
}

func TestPages(t *testing.T) {
	slug := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, p := range pages() {
		if !slug.MatchString(p.code) {
			t.Errorf("%q is no slug", p.code)
		}
		for part, text := range map[string]string{"title": p.title, "trigger": p.trigger, "why": p.why, "fix": p.fix} {
			if strings.TrimSpace(text) == "" || text != strings.TrimSpace(text) {
				t.Errorf("%s: the %s is empty or has blanks around it", p.code, part)
			}
			if strings.ContainsAny(text, "\n\t") || strings.Contains(text, "  ") {
				t.Errorf("%s: the %s is laid out by hand", p.code, part)
			}
		}
	}
}
