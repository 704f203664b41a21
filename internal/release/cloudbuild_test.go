package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/cloudbuild/apiv1/v2/cloudbuildpb"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const root = "../.." // of the repository

// documents returns the YAML documents of a file, as JSON.
func documents(t *testing.T, file string) (out [][]byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc map[string]any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, text)
	}
}

// strict reads JSON into a message of Cloud Build. Unknown fields are refused.
func strict(t *testing.T, file string, data []byte, m proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal(data, m); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func readBuild(t *testing.T, file string) *cloudbuildpb.Build {
	t.Helper()
	docs := documents(t, file)
	if len(docs) != 1 {
		t.Fatalf("%s has %d documents", file, len(docs))
	}
	var b cloudbuildpb.Build
	strict(t, file, docs[0], &b)
	return &b
}

const (
	planFile  = "cloudbuild.yaml"
	applyFile = "cloudbuild-apply.yaml"
)

var substitution = regexp.MustCompile(`\$\{?(_[A-Z0-9_]+)`)

func TestBuildsAreWhatCloudBuildReads(t *testing.T) {
	for file, steps := range map[string]string{planFile: "vet test build push digest plan save", applyFile: "fetch apply"} {
		b := readBuild(t, file)
		var ids []string
		text := b.ServiceAccount + strings.Join(b.Images, " ")
		for _, s := range b.Steps {
			ids, text = append(ids, s.Id), text+s.Script
			if len(s.WaitFor) > 0 {
				t.Errorf("%s: the step %s does not wait for all before it", file, s.Id)
			}
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(s.Script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: the script of %s: %v: %s", file, s.Id, err, out)
			}
		}
		if got := strings.Join(ids, " "); got != steps {
			t.Errorf("%s has the steps %s, want %s", file, got, steps)
		}
		used := map[string]bool{}
		for _, m := range substitution.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
			if _, has := b.Substitutions[m[1]]; !has {
				t.Errorf("%s uses %s, which it does not define", file, m[1])
			}
		}
		for name := range b.Substitutions {
			if !used[name] {
				t.Errorf("%s defines %s, which nothing uses", file, name)
			}
		}
		if !strings.HasPrefix(b.ServiceAccount, "projects/$PROJECT_ID/serviceAccounts/") || b.Options.GetLogging() != cloudbuildpb.BuildOptions_CLOUD_LOGGING_ONLY ||
			!b.Options.GetAutomapSubstitutions() || !b.Options.GetDynamicSubstitutions() {
			t.Errorf("%s: account %q, options %v", file, b.ServiceAccount, b.Options)
		}
	}
}

func TestBothBuildsMeanTheSameStateAndOnlyOneMayChangeIt(t *testing.T) {
	plan, apply := readBuild(t, planFile), readBuild(t, applyFile)
	for _, name := range []string{"_ROOT", "_STATE_BUCKET", "_STATE_PREFIX"} {
		if plan.Substitutions[name] != apply.Substitutions[name] || plan.Substitutions[name] == "" {
			t.Errorf("%s is %q for the plan and %q for what applies it", name, plan.Substitutions[name], apply.Substitutions[name])
		}
	}
	if plan.ServiceAccount == apply.ServiceAccount {
		t.Errorf("both builds run as %s", plan.ServiceAccount)
	}
	for _, s := range plan.Steps {
		if strings.Contains(s.Script, "terraform") && strings.Contains(s.Script, " apply ") {
			t.Errorf("the step %s of the plan applies: %s", s.Id, s.Script)
		}
	}
}

func TestOnlyAnApprovedBuildApplies(t *testing.T) {
	triggers := map[string]*cloudbuildpb.BuildTrigger{}
	for _, doc := range documents(t, "cloudbuild-triggers.yaml") {
		var trigger cloudbuildpb.BuildTrigger
		strict(t, "cloudbuild-triggers.yaml", doc, &trigger)
		triggers[trigger.Name] = &trigger
	}
	build := readBuild(t, planFile)
	plan, apply := triggers["bigtable-functions-plan"], triggers[build.Substitutions["_APPLY_TRIGGER"]]
	if len(triggers) != 2 || plan == nil || apply == nil {
		t.Fatalf("the triggers are %v", triggers)
	}
	if plan.GetFilename() != planFile || plan.ApprovalConfig.GetApprovalRequired() || plan.Github.GetPush().GetBranch() != "^main$" {
		t.Errorf("the trigger of the plan: %v", plan)
	}
	if !apply.ApprovalConfig.GetApprovalRequired() || apply.GetGitFileSource().GetPath() != applyFile || apply.Github != nil || apply.PubsubConfig != nil || apply.WebhookConfig != nil {
		t.Errorf("the trigger that applies: %v", apply)
	}
	for _, c := range []struct {
		trigger *cloudbuildpb.BuildTrigger
		account string
	}{{plan, build.Substitutions["_BUILDER"]}, {apply, readBuild(t, applyFile).Substitutions["_DEPLOYER"]}} {
		if !strings.HasSuffix(c.trigger.ServiceAccount, "/"+c.account+"@PROJECT.iam.gserviceaccount.com") {
			t.Errorf("%s runs as %s, its build as %s", c.trigger.Name, c.trigger.ServiceAccount, c.account)
		}
	}
}

// Stand-ins for the programs that the scripts call. Each appends its arguments to $CALLS.
var standIns = map[string]string{
	"docker": `case "$1" in inspect)
  echo "elsewhere.example/functions@sha256:bad"
  echo "$_IMAGE@sha256:0123" ;; esac`,
	"terraform": `for a in "$@"; do case "$a" in
  init) echo locked > "$_ROOT/.terraform.lock.hcl" ;;
  -out=*) echo "a plan of $*" > "${a#-out=}" ;;
  */tfplan) cat "$a" > "$BUCKET/applied" ;; esac; done`,
	"gcloud": `if [ "$1 $2" = "storage cp" ]; then
  from=${3#gs://}; to=${4#gs://}
  [ "$from" = "$3" ] || from="$BUCKET/$from"
  [ "$to" = "$4" ] || to="$BUCKET/$to"
  mkdir -p "$(dirname "$to")" && cp "$from" "$to"
fi`,
}

// builder runs the scripts of builds.
type builder struct {
	t                *testing.T
	dir, bucket, bin string
	calls            string // a file with a line for each call of a stand-in
}

func newBuilder(t *testing.T) *builder {
	b := &builder{t: t, dir: t.TempDir(), bucket: t.TempDir(), bin: t.TempDir()}
	b.calls = filepath.Join(b.bin, "calls")
	for name, script := range standIns {
		text := "#!/bin/sh\nset -e\necho " + name + " \"$*\" >> \"$CALLS\"\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(b.bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(b.dir, "terraform/examples/everything"), 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// run runs the scripts of some steps as Cloud Build does, with the substitutions as variables.
func (b *builder) run(build *cloudbuildpb.Build, set map[string]string, ids ...string) error {
	vars := map[string]string{"PROJECT_ID": "p", "LOCATION": "l", "BUILD_ID": "b1", "COMMIT_SHA": "c0ffee", "SHORT_SHA": "c0ff", "TAG_NAME": ""}
	expand := func(s string) string { return os.Expand(s, func(name string) string { return vars[name] }) }
	env := []string{"PATH=" + b.bin + ":" + os.Getenv("PATH"), "CALLS=" + b.calls, "BUCKET=" + b.bucket}
	for name, value := range build.Substitutions {
		if v, has := set[name]; has {
			value = v
		}
		env = append(env, name+"="+expand(value))
	}
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	for _, s := range build.Steps {
		if !slices.Contains(ids, s.Id) {
			continue
		}
		cmd := exec.CommandContext(b.t.Context(), "sh", "-c", s.Script)
		cmd.Dir, cmd.Env = b.dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", s.Id, err, out)
		}
	}
	return nil
}

func (b *builder) read(path string) string {
	b.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func TestWhatIsAppliedIsExactlyThePlanThatWasSaved(t *testing.T) {
	b := newBuilder(t)
	if err := b.run(readBuild(t, planFile), nil, "build", "push", "digest", "plan", "save"); err != nil {
		t.Fatal(err)
	}
	saved := b.read(filepath.Join(b.bucket, "p-bigtable-functions-state/plans/b1/tfplan"))
	if !strings.Contains(saved, "-var image=l-docker.pkg.dev/p/bigtable-functions/functions@sha256:0123") {
		t.Errorf("the plan does not name the image by its digest: %s", saved)
	}
	hash := sha256.Sum256([]byte(saved))
	sum := hex.EncodeToString(hash[:])
	calls := b.read(b.calls)
	for _, want := range []string{
		"docker build --build-arg VERSION=c0ff --tag l-docker.pkg.dev/p/bigtable-functions/functions:c0ffee .\n",
		"gcloud builds triggers run bigtable-functions-apply --region=l --sha=c0ffee --substitutions=_PLAN=b1,_PLAN_SHA256=" + sum + "\n",
	} {
		if !strings.Contains(calls, want) {
			t.Errorf("the build does not call %s: it calls\n%s", want, calls)
		}
	}
	if strings.Contains(calls, " apply ") {
		t.Errorf("the build of the plan applies:\n%s", calls)
	}

	apply := readBuild(t, applyFile)
	approved := map[string]string{"_PLAN": "b1", "_PLAN_SHA256": sum}
	b.dir = newBuilder(t).dir // another checkout
	if err := b.run(apply, approved, "fetch", "apply"); err != nil {
		t.Fatal(err)
	}
	if got := b.read(filepath.Join(b.bucket, "applied")); got != saved {
		t.Errorf("applied is\n%s\nsaved was\n%s", got, saved)
	}

	if err := os.WriteFile(filepath.Join(b.bucket, "p-bigtable-functions-state/plans/b1/tfplan"), []byte("another plan\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.run(apply, approved, "fetch", "apply"); err == nil || !strings.HasPrefix(err.Error(), "fetch: ") {
		t.Errorf("a plan that was replaced: error %v, want one of the step fetch", err)
	}
	if got := b.read(filepath.Join(b.bucket, "applied")); got != saved {
		t.Errorf("the plan that was replaced is applied: %s", got)
	}
}

// Without a digest in the registry that the image was pushed to, nothing is planned.
func TestAnImageWithoutItsDigestIsNotPlanned(t *testing.T) {
	b := newBuilder(t)
	if err := os.WriteFile(filepath.Join(b.bin, "docker"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.run(readBuild(t, planFile), nil, "build", "push", "digest", "plan"); err == nil || !strings.HasPrefix(err.Error(), "digest: ") {
		t.Errorf("error %v, want one of the step digest", err)
	}
}

// The images in which the binary is built and tested have the Go of go.mod.
func TestBuildImagesHaveTheGoOfTheModule(t *testing.T) {
	read := func(file string) string {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.`).FindStringSubmatch(read("go.mod"))
	if m == nil {
		t.Fatal("go.mod names no version of Go")
	}
	want := "golang:" + m[1]
	if !strings.Contains(read("Dockerfile"), "\nARG BUILD_IMAGE="+want+"\n") {
		t.Errorf("the Dockerfile does not build in %s", want)
	}
	for _, s := range readBuild(t, planFile).Steps {
		if strings.HasPrefix(s.Name, "golang:") && s.Name != want {
			t.Errorf("the step %s runs in %s, want %s", s.Id, s.Name, want)
		}
	}
}
