package release

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The schema is what `goreleaser jsonschema` of the version in testdata prints.
func TestGoReleaserReadsItsConfiguration(t *testing.T) {
	data, err := os.ReadFile("testdata/goreleaser-v2.15.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	config := documents(t, ".goreleaser.yaml")[0]
	check := func(config []byte) error {
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(instance)
	}
	if err := check(config); err != nil {
		t.Error(err)
	}
	if wrong := bytes.Replace(config, []byte(`"goarch"`), []byte(`"goarches"`), 1); check(wrong) == nil {
		t.Error("a field that GoReleaser does not know is accepted")
	}
}

func TestReleasesAreForThreeSystemsOnTwoProcessorsWithChecksumsAndAnSBOM(t *testing.T) {
	var config struct {
		Builds []struct {
			Main, Binary         string
			Env, Flags, Ldflags  []string
			Goos, Goarch, Ignore []string
		}
		Checksum struct{ Algorithm string }
		Sboms    []struct{ Artifacts string }
	}
	if err := json.Unmarshal(documents(t, ".goreleaser.yaml")[0], &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Builds) != 1 {
		t.Fatalf("%d builds", len(config.Builds))
	}
	b := config.Builds[0]
	if !slices.Equal(b.Goos, []string{"linux", "darwin", "windows"}) || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) || b.Ignore != nil {
		t.Errorf("systems %v on %v without %v", b.Goos, b.Goarch, b.Ignore)
	}
	if b.Main != "./cmd/btf" || b.Binary != "btf" || !slices.Contains(b.Env, "CGO_ENABLED=0") || !slices.Contains(b.Flags, "-trimpath") {
		t.Errorf("%+v", b)
	}
	if len(b.Ldflags) != 1 || !strings.Contains(b.Ldflags[0], "/internal/version.stamped=v{{ .Version }}") {
		t.Errorf("the version is not stamped: %q", b.Ldflags)
	}
	if config.Checksum.Algorithm != "sha256" || len(config.Sboms) != 1 || config.Sboms[0].Artifacts != "archive" {
		t.Errorf("checksum %+v, SBOMs %+v", config.Checksum, config.Sboms)
	}
}

// A variable that the linker does not find is left empty without an error: so the one that the
// Dockerfile and the releases name is stamped here.
func TestTheStampedVariableExists(t *testing.T) {
	main := filepath.Join(t.TempDir(), "main")
	const text = `package main

import "github.com/bigtable-functions/bigtable-functions/internal/version"

func main() { println(version.Current()) }
`
	// Inside the module, since the package is internal.
	dir, err := os.MkdirTemp(filepath.Join(root, "internal", "release", "testdata"), "stamp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags", "-X github.com/bigtable-functions/bigtable-functions/internal/version.stamped=v9.8.7", "-o", main, "./main.go")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(main).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "v9.8.7 (go") {
		t.Errorf("%v: %s", err, out)
	}
}

// `go install …@version` refuses a module with a replace or exclude directive.
func TestTheModuleCanBeInstalledByVersion(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module           struct{ Path string }
		Replace, Exclude []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != "github.com/bigtable-functions/bigtable-functions" || len(mod.Replace) > 0 || len(mod.Exclude) > 0 {
		t.Errorf("%+v", mod)
	}
}

var heading = regexp.MustCompile(`(?m)^## (.*)$`)

func TestTheChangelogBeginsWithWhatIsNotReleasedAndHasSemanticVersions(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	released := regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.]+)? \(\d{4}-\d\d-\d\d\)$`)
	for i, m := range heading.FindAllStringSubmatch(string(data), -1) {
		if ok := i == 0 && m[1] == "Unreleased" || i > 0 && released.MatchString(m[1]); !ok {
			t.Errorf("heading %d is %q: want Unreleased first, and then as in 1.2.3 (2026-12-31)", i, m[1])
		}
	}
}
