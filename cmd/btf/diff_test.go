package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDiffSaysWhatANewVersionChanges(t *testing.T) {
	old := strings.NewReplacer("FORMAT", "json", `"1h"))`, `"1h"))`+"\n      dedupe: window").Replace(counters)
	in(t, map[string]string{"old.yaml": old, "new.yaml": strings.Replace(old, "name: views", "name: page-views", 1)})
	stdout, stderr, err := run(t, "diff", "old.yaml", "new.yaml")
	if err != nil || stderr != "" {
		t.Fatalf("%v: %s", err, stderr)
	}
	const want = `! tokens: write.mappings.views.name
    - views
    + page-views
    ! contributions that were counted under the old tokens count again if their message comes again: pause the events, wait until none is outstanding, and then deploy
1 difference, of which 1 may harm what is on its way
`
	if stdout != want {
		t.Errorf("got\n%swant\n%s", stdout, want)
	}
	if stdout, _, err = run(t, "diff", "old.yaml", "old.yaml"); err != nil || stdout != "no difference\n" {
		t.Errorf("%v: %q", err, stdout)
	}
	stdout, _, err = run(t, "diff", "--json", "old.yaml", "new.yaml")
	var report struct {
		Differences []struct{ Part, Place, Old, New, Harm string }
	}
	if err != nil || json.Unmarshal([]byte(stdout), &report) != nil || len(report.Differences) != 1 || report.Differences[0].New != "page-views" {
		t.Errorf("%v: %s", err, stdout)
	}
	if stdout, _, err = run(t, "diff", "--json", "old.yaml", "old.yaml"); err != nil || strings.Contains(stdout, "null") {
		t.Errorf("%v: %s", err, stdout)
	}
	if _, _, err = run(t, "diff", "old.yaml", "absent.yaml"); err == nil || !strings.Contains(err.Error(), "reading the pipeline file") {
		t.Errorf("error %v", err)
	}
}
