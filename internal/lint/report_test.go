package lint

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// The golden files are made by: go test ./internal/lint -run Golden -update
func TestGoldenReports(t *testing.T) {
	for _, file := range []string{"orders.yaml", "every.yaml"} {
		data, err := os.ReadFile(filepath.Join("../pipeline/testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		l, findings := Load(data, pipeline.Options{File: file})
		if l == nil {
			t.Fatal(findings.Err())
		}
		golden := filepath.Join("testdata", file+".golden")
		got := print(t, l.Report)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what is said of %s:\n%s", golden, file, got)
		}
	}
}

func print(t *testing.T, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s [%s]\n", f, f.Rule)
	}
	for _, replay := range r.Replays {
		fmt.Fprintf(&b, "\n%s: mapping %s: %s\n", replay.Pos, replay.Mapping, replay.Verdict)
		for _, m := range replay.Mutations {
			fmt.Fprintf(&b, "  %s: %s: %s: %s\n", m.Pos, m.Kind, m.Verdict, m.Why)
		}
	}
	b.WriteByte('\n')
	for _, g := range r.Grants {
		fmt.Fprintf(&b, "%s %s on %s %s: %s\n", g.Principal, g.Role, g.On.Kind, g.On.Name, g.Why)
	}
	b.WriteByte('\n')
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r.Resources); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAPipelineGetsNoRoleItDoesNotNeed(t *testing.T) {
	l, _ := load(t, fmt.Sprintf(keyRig, "string", "event.id"))
	got := ""
	for _, g := range l.Report.Grants {
		got += fmt.Sprintf("%s %s %s\n", g.Principal, g.Role, g.On.Name)
	}
	want := `write roles/bigtable.user projects/my-project/instances/my-instance/tables/t
push roles/run.invoker orders-write
pubsub-agent roles/iam.serviceAccountTokenCreator orders-push
pubsub-agent roles/pubsub.publisher orders-undelivered
pubsub-agent roles/pubsub.subscriber orders-events
deployer roles/iam.serviceAccountUser orders-push
deployer roles/iam.serviceAccountUser orders-write
deployer roles/run.admin orders-write
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestATopicOfAnotherProjectIsNamedInFull(t *testing.T) {
	l, findings := Load(fmt.Appendf(nil, scanRig, "    to: {pubsub: {topic: projects/other/topics/out}}\n"), pipeline.Options{File: "p.yaml"})
	if l == nil {
		t.Fatal(findings.Err())
	}
	publisher := Grant{Principal: ScanWorker, Role: rolePublisher, On: Target{"topic", "projects/other/topics/out"}, Why: "scan all publishes there"}
	if !slices.Contains(l.Report.Grants, publisher) {
		t.Errorf("no grant on the topic: %v", l.Report.Grants)
	}
	if r := l.Report.Resources; !slices.Equal(r.Outputs, []string{"projects/other/topics/out"}) || slices.Contains(r.Topics, "out") {
		t.Errorf("%+v", r)
	}
}

// The planner names a scan by what Pub/Sub says of its request, so that a POST would start
// none; and the message must be one that it reads.
func TestAScheduledScanIsStartedByAMessage(t *testing.T) {
	l, findings := Load(fmt.Appendf(nil, scanRig, "    schedule: {cron: '0 3 * * *'}\n    to: {log: {}}\n"), pipeline.Options{File: "p.yaml"})
	if l == nil {
		t.Fatal(findings.Err())
	}
	s := l.Report.Resources.Schedules
	if len(s) != 1 || s[0].Service != "" || !slices.Contains(l.Report.Resources.Topics, s[0].Topic) {
		t.Fatalf("%+v", s)
	}
	if s[0].Message != `{"scan":"all","scheduled":true}` {
		t.Error(s[0].Message)
	}
}

// A role for a sink that nothing serves is a role that nobody uses.
func TestASinkThatIsNotServedNeedsNoRole(t *testing.T) {
	l, findings := Load(fmt.Appendf(nil, scanRig, "    to: {gcs: {bucket: my-archive}}\n"), pipeline.Options{File: "p.yaml"})
	if l == nil {
		t.Fatal(findings.Err())
	}
	for _, g := range l.Report.Grants {
		if g.On.Kind == "bucket" {
			t.Error(g)
		}
	}
}

func TestEveryAccountHasAnIDThatGoogleTakes(t *testing.T) {
	// Service accounts have 6 to 30 characters, pipelines at most 17.
	for _, p := range principals {
		if n := 17 + 1 + len(p); p != PubSubAgent && p != SchedulerAgent && n > 30 {
			t.Errorf("the account of %s can have %d characters", p, n)
		}
	}
}
