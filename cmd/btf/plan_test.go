package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// planned is what a reader of plan --json takes from it.
type planned struct {
	Bill struct {
		Dollars  float64
		Dataflow struct{ Dollars float64 }
		Prices   json.RawMessage
	}
}

func planOf(t *testing.T, args ...string) planned {
	t.Helper()
	stdout, stderr, err := run(t, append([]string{"plan", "--json"}, args...)...)
	if err != nil || stderr != "" {
		t.Fatalf("%v: %s", err, stderr)
	}
	var p planned
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

const planFile = `version: 1
name: feeds
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
changes:
  feed: {table: orders, appProfile: single, to: {pubsub: {topic: feed}}}
`

func TestPlanAndLintNameTheSameResourcesAndRoles(t *testing.T) {
	in(t, map[string]string{"p.yaml": planFile})
	read := func(args ...string) (out map[string]any) {
		stdout, _, err := run(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(strings.Trim(stdout, "[]\n ")), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	plan, linted := read("plan", "-f", "p.yaml", "--json"), read("lint", "--json", "p.yaml")
	want := linted["resources"].(map[string]any)
	want["grants"], want["file"], want["pipeline"], want["bill"] = linted["grants"], "p.yaml", "feeds", plan["bill"]
	if !reflect.DeepEqual(plan, want) {
		t.Errorf("the plan has\n%v\nlint says\n%v", plan, want)
	}
	if topics := fmt.Sprint(plan["topics"]); topics != "[feeds-change-tasks]" {
		t.Errorf("topics %s", topics)
	}
}

func TestPlanReckonsWithThePricesThatItIsGiven(t *testing.T) {
	in(t, map[string]string{"p.yaml": planFile})
	load := []string{"-f", "p.yaml", "--changes-per-second", "10", "--partitions", "1000"}
	p := planOf(t, load...)
	if p.Bill.Dollars < 90 || p.Bill.Dollars > 110 {
		t.Errorf("the bill is %v: docs/changes.md says about 99 without the sink", p.Bill.Dollars)
	}
	dear := strings.Replace(string(p.Bill.Prices), `"dataflow.vCPUHour": 0.069`, `"dataflow.vCPUHour": 1`, 1)
	in(t, map[string]string{"p.yaml": planFile, "prices.json": dear, "bad.yaml": "prices: {}"})
	again := planOf(t, append(load, "--prices", "prices.json")...)
	if again.Bill.Dollars != p.Bill.Dollars {
		t.Errorf("the bill of the pipeline is %v with other prices of Dataflow, was %v", again.Bill.Dollars, p.Bill.Dollars)
	}
	if got, want := again.Bill.Dataflow.Dollars-p.Bill.Dataflow.Dollars, 1460*(1-0.069); got < want-0.01 || got > want+0.01 {
		t.Errorf("Dataflow costs %v more, want %v", got, want)
	}
	if _, _, err := run(t, "plan", "-f", "p.yaml", "--prices", "bad.yaml"); err == nil || !strings.Contains(err.Error(), "bad.yaml: reading the table of prices: it has no region") {
		t.Errorf("error %v", err)
	}
	if _, _, err := run(t, "plan", "-f", "p.yaml", "--events-per-second", "-1"); err == nil || !strings.Contains(err.Error(), "-1 events per second") {
		t.Errorf("error %v", err)
	}
}

func TestPlanShowsItsArithmetic(t *testing.T) {
	in(t, map[string]string{"p.yaml": planFile})
	stdout, _, err := run(t, "plan", "-f", "p.yaml", "--changes-per-second", "10", "--partitions", "1000")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{
		"p.yaml: topic feeds-change-tasks ",
		"A month at 0 events/s, 10 changes/s and 1000 partitions for each change stream, and 0 rows for each scheduled scan: ",
		"changes feed vCPU 2,436.3 an hour (simulated) × 730 h = 1,778,499 vCPU-seconds × 0.000024 / vCPU-second 42.68 ",
		"schedules jobs 1 in the file = 1 jobs × 0.1 / job 0.10 ",
		"Dataflow vCPU 1 × 2 vCPU × 730 h = 1,460 vCPU-hours × 0.069 / vCPU-hour 100.74 ",
		"Prices in USD of us-central1, written down on 2026-12-01, not verified: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan lacks %q:\n%s", want, stdout)
		}
	}
}

// A program that reads the plan finds each list, and never null.
func TestAPlanOfLittleHasEmptyLists(t *testing.T) {
	in(t, map[string]string{"p.yaml": strings.Replace(planFile, "changes:\n  feed: {table: orders, appProfile: single, to: {pubsub: {topic: feed}}}", "scans:\n  all: {table: orders, to: {log: {}}}", 1)})
	stdout, _, err := run(t, "plan", "-f", "p.yaml", "--json")
	if err != nil || !strings.Contains(stdout, `"schedules": []`) || strings.Contains(stdout, "null") {
		t.Errorf("%v: %s", err, stdout)
	}
}
