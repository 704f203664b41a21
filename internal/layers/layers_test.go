package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestImportsGoDown(t *testing.T) {
	found := load(t, root)
	if len(found) < 10 {
		t.Fatalf("only %d packages found under the module's root", len(found))
	}
	for _, v := range append(violations(table, found), unused(table, found)...) {
		t.Error(v)
	}
}

func TestTheTableHasNoCycle(t *testing.T) {
	for pkg := range table {
		if slices.Contains(reach(table, pkg), pkg) {
			t.Errorf("%s lies below itself", pkg)
		}
	}
}

func TestTheDeployedBinaryHasNoTestSupport(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/functions")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, Module+"/cmd/functions") {
		t.Fatalf("go list -deps did not list the package itself among %d", len(deps))
	}
	for _, d := range deployed(deps) {
		t.Errorf("cmd/functions contains %s", d)
	}
}

func TestAForbiddenImportIsReported(t *testing.T) {
	tests := []struct {
		name string
		pkg  string
		imports
		want string // "" where allowed
	}{
		{name: "down", pkg: "internal/writer", imports: imports{code: []string{"internal/btrpc"}}},
		{name: "down, from a program", pkg: "cmd/functions", imports: imports{code: []string{"cmd/internal/assemble", "internal/push", "ledger"}}},
		{name: "up", pkg: "internal/btrpc", imports: imports{code: []string{"internal/writer"}},
			want: "internal/btrpc may not import internal/writer"},
		{name: "a leaf imports", pkg: "internal/cell", imports: imports{code: []string{"internal/rowrange"}},
			want: "internal/cell may not import internal/rowrange"},
		{name: "function to function", pkg: "functions/scan-worker", imports: imports{code: []string{"functions/write"}},
			want: "functions/scan-worker may not import functions/write"},
		{name: "internal to function", pkg: "internal/localcloud", imports: imports{code: []string{"functions/write"}},
			want: "internal/localcloud may not import functions/write"},
		{name: "the test of internal to function", pkg: "internal/localcloud", imports: imports{tests: []string{"functions/write"}},
			want: "tests of internal/localcloud may not import functions/write"},
		{name: "internal to program", pkg: "internal/push", imports: imports{code: []string{"cmd/btf"}},
			want: "internal/push may not import cmd/btf"},
		{name: "emulator to what it tests", pkg: "emulator", imports: imports{code: []string{"internal/retry"}},
			want: "emulator may not import internal/retry"},
		{name: "function to emulator", pkg: "functions/write", imports: imports{code: []string{"emulator"}},
			want: "functions/write may not import emulator"},
		{name: "the test of a function to the emulator", pkg: "functions/write", imports: imports{tests: []string{"emulator", "functions/write"}}},
		{name: "what programs share, to the emulator", pkg: "cmd/internal/assemble", imports: imports{code: []string{"functions/scan-worker", "emulator"}},
			want: "cmd/internal/assemble may not import emulator"},
		{name: "function to what programs share", pkg: "functions/scan-worker", imports: imports{code: []string{"cmd/internal/assemble"}},
			want: "functions/scan-worker may not import cmd/internal/assemble"},
		{name: "test support in a program", pkg: "cmd/btf", imports: imports{code: []string{"internal/googleemu"}},
			want: "cmd/btf may not import internal/googleemu"},
		{name: "a test goes further down than its package", pkg: "internal/lint", imports: imports{tests: []string{"internal/record"}}},
		{name: "a test goes up", pkg: "internal/retry", imports: imports{tests: []string{"internal/btrpc"}},
			want: "tests of internal/retry may not import internal/btrpc"},
		{name: "unknown package", pkg: "internal/util", want: "internal/util is in no layer: add it to the table"},
		{name: "below a known package", pkg: "internal/writer/batch", want: "internal/writer/batch is in no layer: add it to the table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(table, map[string]imports{tt.pkg: tt.imports})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("reported %q, want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tt.want)):
				t.Errorf("reported %q, want one that starts with %q", got, tt.want)
			}
		})
	}
}

func TestARowThatSaysTooMuchIsReported(t *testing.T) {
	rows := map[string][]string{"a": {"b", "c"}, "b": {}, "c": {"b"}, "gone": {"b"}}
	found := map[string]imports{"a": {code: []string{"b"}, tests: []string{"c"}}, "b": {}, "c": {code: []string{"b"}}}
	want := []string{
		"a does not import c: remove it from the row in internal/layers/layers.go",
		"gone does not exist: remove its row in internal/layers/layers.go",
	}
	if got := unused(rows, found); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestTestSupportInTheDeployedBinaryIsReported(t *testing.T) {
	deps := []string{"fmt", Module + "/internal/writer", Module + "/emulator/internal/store", "github.com/spf13/cobra", "cloud.google.com/go/pubsub/v2"}
	want := []string{Module + "/emulator/internal/store", "github.com/spf13/cobra"}
	if got := deployed(deps); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// TestAForbiddenImportInAFileIsReported goes the whole way from source files to the sentence.
func TestAForbiddenImportInAFileIsReported(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("internal/cell/cell.go", "package cell\n\nimport (\n\t\"fmt\"\n\n\t_ \""+Module+"/pipeline\"\n)\n")
	write("internal/cell/cell_test.go", "package cell_test\n\nimport _ \""+Module+"/internal/cell\"\n")
	write("internal/cell/testdata/broken.go", "not Go")
	write("bench/go.mod", "module elsewhere\n")
	write("bench/bench.go", "package bench\n\nimport _ \""+Module+"/cmd/btf\"\n")
	got := violations(table, load(t, dir))
	if len(got) != 1 || !strings.HasPrefix(got[0], "internal/cell may not import pipeline") {
		t.Errorf("reported %q, want the one import of pipeline", got)
	}
}

// load reads the imports of all packages under dir, whatever their build constraints, leaving out other modules and what the go command ignores.
func load(t *testing.T, dir string) map[string]imports {
	t.Helper()
	found := map[string]imports{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != dir {
			if name := d.Name(); strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return filepath.SkipDir
			}
		}
		if d.IsDir() || filepath.Ext(file) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		imp := found[pkg]
		ours, err := importsOf(file)
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, "_test.go") {
			imp.tests = append(imp.tests, ours...)
		} else {
			imp.code = append(imp.code, ours...)
		}
		imp.code, imp.tests = uniq(imp.code), uniq(imp.tests)
		found[pkg] = imp
		return nil
	})
	if err != nil {
		t.Fatalf("reading imports: %v", err)
	}
	return found
}

// importsOf lists what file imports of this module, relative to it.
func importsOf(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if rel, ok := strings.CutPrefix(p, Module+"/"); ok {
			out = append(out, rel)
		}
	}
	return out, nil
}

func uniq(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
