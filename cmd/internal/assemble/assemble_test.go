package assemble

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const orders = `
version: 1
name: orders
bigtable: {project: p, instance: i}
tables: {orders: {families: {cf: {}}}}
write:
  mappings: [{name: m, table: orders, rowKey: event.id, mutations: [{set: {cf: {v: event.v}}}]}]
scans:
  all: {table: orders, emit: {id: rowKey}, to: {pubsub: {topic: out}}}
`

func load(t *testing.T, text string) *lint.Loaded {
	t.Helper()
	loaded, findings := lint.Load([]byte(text), pipeline.Options{File: "orders.yaml"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return loaded
}

// A service that is deployed has a builder, and only what is deployed is built.
func TestEveryDeployedServiceHasABuilder(t *testing.T) {
	write, scans, _ := strings.Cut(orders, "scans:")
	head, _, _ := strings.Cut(write, "write:")
	for name, text := range map[string]string{"all": orders, "write alone": write, "scans alone": head + "scans:" + scans,
		"changes alone": head + "changes:\n  feed: {table: orders, appProfile: one, to: {pubsub: {topic: out}}}\n"} {
		loaded := load(t, text)
		var deployed, built []lint.Principal
		for _, s := range loaded.Report.Resources.Services {
			deployed = append(deployed, s.Function)
		}
		for _, b := range Needed(loaded) {
			built = append(built, b.Name)
		}
		slices.Sort(deployed)
		slices.Sort(built)
		if !slices.Equal(deployed, built) || len(built) == 0 {
			t.Errorf("%s: deployed %v, built %v", name, deployed, built)
		}
	}
}

// What lint says of a service is deployed: the budget that its function has must be that one.
func TestTheBudgetsThatAreDeployedAreThoseOfTheFunctions(t *testing.T) {
	budgets := map[lint.Principal]time.Duration{
		lint.Write: write.Budget, lint.ScanPlanner: scanplanner.Budget, lint.ScanWorker: scanworker.Budget, lint.Changes: changes.Budget,
	}
	loaded := load(t, orders+"changes:\n  feed: {table: orders, appProfile: one, to: {pubsub: {topic: out}}}\n")
	services := loaded.Report.Resources.Services
	if len(services) != len(Builders()) {
		t.Errorf("%d services, and there are %d functions", len(services), len(Builders()))
	}
	for _, s := range services {
		if time.Duration(s.Budget) != budgets[s.Function] || s.Timeout <= s.Budget {
			t.Errorf("%s is deployed with a budget of %s and a timeout of %s, and the function has %s", s.Function, s.Budget, s.Timeout, budgets[s.Function])
		}
	}
}

func TestAHalfBuiltFunctionClosesWhatItOpenedTheNewestFirst(t *testing.T) {
	var closed []string
	closing := func(name string, err error) func() error {
		return func() error { closed = append(closed, name); return err }
	}
	failed, stuck := errors.New("no topic"), errors.New("it does not close")
	f, err := build(func(f *Function) (http.Handler, error) {
		f.open.Add(closing("connection", stuck))
		f.open.Add(closing("publisher", nil))
		return nil, failed
	})
	if f != nil || !errors.Is(err, failed) || !errors.Is(err, stuck) || !slices.Equal(closed, []string{"publisher", "connection"}) {
		t.Errorf("%v, %v, closed %q", f, err, closed)
	}
}

func TestReadEnv(t *testing.T) {
	variables := map[string]string{
		"BIGTABLE_PROJECT": "p", "BIGTABLE_INSTANCE": "i", "PUBSUB_PROJECT": "q", "LEDGER": "firestore:p/(default)",
		"BIGTABLE_EMULATOR_HOST": "http://localhost:8086", "PUBSUB_EMULATOR_HOST": "[::1]:8085", "FIRESTORE_EMULATOR_HOST": "127.0.0.1:8088",
	}
	env, err := ReadEnv(func(name string) string { return variables[name] })
	want := Env{
		Project: "p", Instance: "i", PubSubProject: "q", Ledger: ledger.Location{Project: "p", Database: "(default)"},
		BigtableEmulator: "http://localhost:8086", PubSubEmulator: "[::1]:8085", FirestoreEmulator: "127.0.0.1:8088",
	}
	if err != nil || env != want {
		t.Errorf("%+v, %v", env, err)
	}
	if env, err := ReadEnv(func(string) string { return "" }); err != nil || env != (Env{}) {
		t.Errorf("of nothing: %+v, %v", env, err)
	}
}

func TestTheProjectOfTheTopics(t *testing.T) {
	p := load(t, orders).Pipeline
	for _, c := range []struct {
		env  Env
		want string
	}{
		{Env{}, "p"}, {Env{Project: "a"}, "a"}, {Env{Project: "a", PubSubProject: "b"}, "b"}, {Env{PubSubProject: "b"}, "b"},
	} {
		if got := c.env.TopicsProject(p); got != c.want {
			t.Errorf("%+v: %s, want %s", c.env, got, c.want)
		}
	}
}
