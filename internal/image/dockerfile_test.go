package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const root = "../.." // of the repository

// instruction is one instruction of a Dockerfile.
type instruction struct {
	name string // in capitals
	args string // on one line
}

// parse returns the instructions of a Dockerfile that has neither heredocs nor parser directives.
func parse(text string) ([]instruction, error) {
	var out []instruction
	var line string
	for raw := range strings.Lines(text) {
		raw = strings.TrimSpace(raw)
		if raw == "" || strings.HasPrefix(raw, "#") {
			continue
		}
		part, more := strings.CutSuffix(raw, `\`)
		if line += part; more {
			continue
		}
		name, args, _ := strings.Cut(line, " ")
		if strings.Contains(args, "<<") {
			return nil, fmt.Errorf("%s: a heredoc is not read here", name)
		}
		out, line = append(out, instruction{strings.ToUpper(name), strings.TrimSpace(args)}), ""
	}
	if line != "" {
		return nil, errors.New("the last line goes on nowhere")
	}
	return out, nil
}

// stages returns the instructions of the two stages of our Dockerfile.
func stages(t *testing.T) (build, final []instruction) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(data))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]instruction
	for _, i := range all {
		if i.name == "FROM" {
			out = append(out, nil)
		}
		if len(out) > 0 {
			out[len(out)-1] = append(out[len(out)-1], i)
		}
	}
	if len(out) != 2 {
		t.Fatalf("the Dockerfile has %d stages, want 2", len(out))
	}
	return out[0], out[1]
}

func args(stage []instruction, name string) (out []string) {
	for _, i := range stage {
		if i.name == name {
			out = append(out, i.args)
		}
	}
	return out
}

const (
	inBuild = "/out/functions" // where the build stage puts the binary
	version = "v0.0.0-test"    // what is stamped here
)

// buildCommand returns the line of the Dockerfile that builds the binary, writing it to path.
func buildCommand(stage []instruction, path string) (string, error) {
	for _, run := range args(stage, "RUN") {
		if before, after, found := strings.Cut(run, "-o "+inBuild+" "); found {
			return before + "-o " + path + " " + after, nil
		}
	}
	return "", fmt.Errorf("no RUN instruction builds %s", inBuild)
}

// built is the binary of this test process: building it takes minutes where nothing is cached.
var built = struct {
	sync.Once
	path string
	err  error
}{}

// TestMain removes the binary.
func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// binary builds the functions as the Dockerfile does, once.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building the image's binary takes minutes where nothing is cached")
	}
	stage, _ := stages(t)
	built.Do(func() {
		dir, err := os.MkdirTemp("", "image")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "functions")
		command, err := buildCommand(stage, built.path)
		if err != nil {
			built.err = err
			return
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = root
		// GOFLAGS may ask for the race detector here. The image's build has none.
		cmd.Env = append(os.Environ(), "GOFLAGS=", "VERSION="+version, "TARGETOS=linux", "TARGETARCH=")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%s: %w\n%s", command, err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func TestTheImageHoldsOneBinaryAndRunsItAsNobody(t *testing.T) {
	build, final := stages(t)
	var got []string
	for _, i := range final {
		got = append(got, i.name+" "+i.args)
	}
	want := []string{"FROM ${BASE_IMAGE}", "COPY --from=build " + inBuild + " /functions", "USER 65532:65532", `ENTRYPOINT ["/functions"]`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the image is made by\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "\nARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot\n") {
		t.Error("the base image is not distroless static by default")
	}
	command, err := buildCommand(build, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"CGO_ENABLED=0 ", " -trimpath ", "-s -w ", "internal/version.stamped=$VERSION"} {
		if !strings.Contains(command, flag) {
			t.Errorf("the binary is built without %q: %s", flag, command)
		}
	}
}

// What .dockerignore lets through suffices to build the binary.
func TestTheBuildHasAllThatItNeeds(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	let := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "!"); found {
			let[name] = true
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./cmd/functions")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 10 {
		t.Fatalf("the functions consist of %v", packages)
	}
	for _, pkg := range packages {
		path := strings.TrimPrefix(pkg, "github.com/bigtable-functions/bigtable-functions/")
		if top, _, _ := strings.Cut(path, "/"); !let[top] {
			t.Errorf(".dockerignore keeps %s from the build, which needs it", path)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if !let[file] {
			t.Errorf(".dockerignore keeps %s from the build", file)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse("# c\nARG A=1\n\nfrom x AS y\nRUN a && \\\n  b\n")
	if want := "[{ARG A=1} {FROM x AS y} {RUN a && b}]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v %v, want %s", got, err, want)
	}
	for _, text := range []string{"RUN <<EOF\nEOF\n", "RUN a \\\n"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
