package bill

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/prices"
)

// loaded reads a pipeline file.
func loaded(t testing.TB, text string) *lint.Loaded {
	t.Helper()
	l, findings := lint.Load([]byte(text), pipeline.Options{File: "pipeline.yaml"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return l
}

func month(t testing.TB, l *lint.Loaded, load Load) *Bill {
	t.Helper()
	table, err := prices.Default()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Month(l.Pipeline, &l.Report.Resources, load, table)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reckoning is the bill again: exact fractions, with the unit prices as a reader would
// copy them from Google's pages.
type reckoning struct{ sum *big.Rat }

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

// pay adds the product of factors, in whole cents, half a cent rounded up.
func (r *reckoning) pay(factors ...*big.Rat) {
	cost := big.NewRat(100, 1)
	for _, f := range factors {
		cost.Mul(cost, f)
	}
	cost.Add(cost, big.NewRat(1, 2))
	whole := new(big.Int).Quo(cost.Num(), cost.Denom())
	r.sum.Add(r.sum, new(big.Rat).SetFrac(whole, big.NewInt(100)))
}

const secondsOfAMonth = "2628000"

// write200 reckons 200 events a second, which keep one instance busy for all but e^-20 of the month.
func (r *reckoning) write200() {
	events := new(big.Rat).Mul(rat("200"), rat(secondsOfAMonth))
	r.pay(events, rat("0.40"), rat("1/1000000"))
	busy := rat("2627999.99458331") // 2628000 × (1 − 2.0611536e-9)
	r.pay(busy, rat("0.000024"))
	r.pay(busy, rat("0.0000025"), rat("1/2"))
	r.pay(events, rat("2000"), rat("40"), rat("1/1099511627776"))
	r.pay(events, rat("1000"), rat("0.50"), rat("1/1073741824"))
}

// stream reckons 1,000 partitions with 10 changes a second from what was simulated.
func (r *reckoning) stream(t *testing.T, toPubSub bool) {
	data, err := os.ReadFile("changes.json")
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Full []map[string]json.Number
	}
	if err := json.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	for _, c := range known.Full {
		if c["partitions"] != "1000" || c["changesPerSecond"] != "10" {
			continue
		}
		hourly := func(name string) *big.Rat { return new(big.Rat).Mul(rat(c[name].String()), rat("730")) }
		r.pay(hourly("requests"), rat("0.0000004"))
		r.pay(hourly("instanceSeconds"), rat("0.000024"))
		r.pay(hourly("instanceSeconds"), rat("0.00000125"))
		r.pay(hourly("reads"), rat("0.0000003"))
		r.pay(hourly("writes"), rat("0.0000009"))
		r.pay(hourly("deletes"), rat("0.0000001"))
		r.pay(hourly("requests"), rat("2000"), rat("40"), rat("1/1099511627776"))
		if toPubSub {
			r.pay(rat("10"), rat(secondsOfAMonth), rat("2000"), rat("40"), rat("1/1099511627776"))
		}
		r.pay(hourly("requests"), rat("1000"), rat("0.50"), rat("1/1073741824"))
		return
	}
	t.Fatal("the load was not simulated")
}

// runsInAYear counts the runs of a schedule whose fields are single numbers or *.
func runsInAYear(t *testing.T, cron string) int64 {
	f := strings.Fields(cron)
	is := func(field string, n int) bool { return field == "*" || field == strconv.Itoa(n) }
	if _, err := strconv.Atoi(f[0] + f[1]); err != nil || strings.ContainsAny(cron, ",-/") {
		t.Fatalf("the schedule %q is not reckoned here", cron)
	}
	runs := int64(0)
	for day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2026; day = day.AddDate(0, 0, 1) {
		if is(f[2], day.Day()) && is(f[3], int(day.Month())) && is(f[4], int(day.Weekday())) {
			runs++
		}
	}
	return runs
}

// scan reckons the runs of a scheduled scan, each of so many rows.
func (r *reckoning) scan(toPubSub bool, rows, runs int64) {
	n, monthly := big.NewRat(rows, 1), big.NewRat(runs, 12)
	r.pay(n, rat("0.000012"), monthly, rat("0.000024"))
	r.pay(n, rat("0.000012"), monthly, rat("0.00000125"))
	splits := (rows*1000 + 1<<28 - 1) / (1 << 28)
	requests := big.NewRat(1+splits+rows/450_000, 1)
	r.pay(requests, monthly, rat("0.0000004"))
	r.pay(big.NewRat(3*splits, 1), monthly, rat("0.0000003"))
	r.pay(big.NewRat(5*splits+rows/50_000, 1), monthly, rat("0.0000009"))
	if toPubSub {
		r.pay(n, monthly, rat("2000"), rat("40"), rat("1/1099511627776"))
	}
	r.pay(requests, monthly, rat("1000"), rat("0.50"), rat("1/1073741824"))
}

// exampleFiles are those of the repository.
func exampleFiles(t *testing.T) []string {
	var out []string
	for _, pattern := range []string{"../../examples/*/pipeline.yaml", "../../terraform/examples/*/pipeline.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, names...)
	}
	if len(out) < 3 {
		t.Fatalf("only %d examples: %v", len(out), out)
	}
	return out
}

const everything = `version: 1
name: everything
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
write:
  format: json
  mappings:
    - name: order
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {status: event.status}}}]
scans:
  archive: {table: orders, to: {log: {}}, schedule: {cron: "0 3 * * *", timeZone: Etc/UTC}}
  few: {table: orders, limit: 5, to: {pubsub: {topic: few}}, schedule: {cron: "0 3 * * *", timeZone: Europe/Berlin}}
  asked: {table: orders, to: {log: {}}}
changes:
  feed: {table: orders, appProfile: single, to: {pubsub: {topic: feed}}}
  trace: {table: orders, appProfile: single, to: {log: {}}}
`

// The bill of every example is reckoned again from the unit prices, in another way.
func TestTheArithmeticOfExamplesIsRepeatedFromTheUnitPrices(t *testing.T) {
	files := map[string]string{"everything": everything}
	for _, name := range exampleFiles(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			l := loaded(t, text)
			b := month(t, l, Load{EventsPerSecond: 200, ChangesPerSecond: 10, Partitions: 1000, RowsPerScan: 1e8})
			again := reckoning{new(big.Rat)}
			if strings.Contains(text, "\nwrite:\n") {
				again.write200()
			}
			for _, s := range l.Pipeline.Scans {
				if rows := int64(1e8); s.Schedule != nil {
					if s.Limit > 0 {
						rows = s.Limit
					}
					again.scan(s.To.PubSub != nil, rows, runsInAYear(t, s.Schedule.Cron))
				}
			}
			jobs := 0
			for _, c := range l.Pipeline.Changes {
				again.stream(t, c.To.PubSub != nil)
				jobs++
			}
			schedules := strings.Count(text, "schedule:")
			if jobs > 0 {
				schedules++
			}
			again.pay(big.NewRat(int64(schedules), 10))
			if want := again.sum.FloatString(2); fmt.Sprintf("%.2f", b.Dollars) != want {
				t.Errorf("the bill is %.2f, reckoned again %s: %+v", b.Dollars, want, b.Lines)
			}
			if strings.Contains(text, "\nwrite:\n") {
				jobs++
			}
			least := reckoning{new(big.Rat)}
			for _, each := range []string{"2 0.069", "7.5 0.003557", "30 0.000054"} {
				amount, price, _ := strings.Cut(each, " ")
				least.pay(big.NewRat(int64(jobs), 1), rat(amount), rat("730"), rat(price))
			}
			if want := least.sum.FloatString(2); fmt.Sprintf("%.2f", b.Dataflow.Dollars) != want || b.Dataflow.Jobs != jobs {
				t.Errorf("Dataflow costs %.2f for %d jobs, reckoned again %s for %d", b.Dataflow.Dollars, b.Dataflow.Jobs, want, jobs)
			}
		})
	}
}

// covers: TST-08
func TestAnIdlePipelineCostsItsTicksBesideANode(t *testing.T) {
	l := loaded(t, everything)
	b := month(t, l, Load{Partitions: 10})
	if b.Beside.Dollars != 474.50 {
		t.Errorf("a node costs %v a month", b.Beside.Dollars)
	}
	var of []string
	for _, line := range b.Lines {
		if line.Dollars > 0 {
			of = append(of, fmt.Sprintf("%s %s %.2f", line.Of, line.What, line.Dollars))
		}
	}
	got := strings.Join(of, ", ")
	want := "changes feed requests 0.02, changes feed vCPU 0.33, changes feed memory 0.02, changes feed ledger reads 0.22, changes feed ledger writes 0.12, changes feed request logs 0.02, " +
		"changes trace requests 0.02, changes trace vCPU 0.33, changes trace memory 0.02, changes trace ledger reads 0.22, changes trace ledger writes 0.12, changes trace request logs 0.02, " +
		"schedules jobs 0.30"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Without this, two instances that are busy all month would be billed as one.
func TestALoadThatOneInstanceCannotBearIsBilledAsSeveral(t *testing.T) {
	b := month(t, loaded(t, everything), Load{EventsPerSecond: 48_000, Partitions: 1})
	if got, want := b.Lines[1].Quantity, 4.0*Seconds; math.Abs(got-want) > 1 {
		t.Errorf("%.0f vCPU-seconds, want %.0f: 48,000 × 50 µs ÷ 0.6 are four", got, want)
	}
}

func TestUsageBetweenAndBeyondTheSimulatedLoads(t *testing.T) {
	g, err := simulatedGrid()
	if err != nil {
		t.Fatal(err)
	}
	at := func(rate, partitions float64) usage { u, _ := g.usage(rate, partitions); return u }
	if got, want := at(1, 1), at(10, 10); got != want {
		t.Errorf("one partition: %+v, want that of ten with as many changes each, %+v", got, want)
	}
	if got, want := at(3000, 30_000), at(1000, 10_000).plus(3, usage{}, 0); got != want {
		t.Errorf("three times the most: %+v, want %+v", got, want)
	}
	if got, want := at(2000, 10), at(1000, 10).plus(2, usage{}, 0); got != want {
		t.Errorf("twice the most changes: %+v, want %+v", got, want)
	}
	if got, want := at(0, 100), at(0, 10).plus(0.5, at(0, 1000), 0.5); got != want {
		t.Errorf("between 10 and 1,000 partitions: %+v, want %+v", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		rate, n := rapid.Float64Range(0, 1e9).Draw(t, "rate"), rapid.IntRange(1, maxPartitions).Draw(t, "partitions")
		u := at(rate, float64(n))
		for _, v := range []float64{u.InstanceSeconds, u.Requests, u.Reads, u.Writes, u.Deletes} {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%+v", u)
			}
		}
	})
}

func TestALoadThatIsNoneIsRefused(t *testing.T) {
	for _, l := range []Load{
		{EventsPerSecond: -1, Partitions: 1}, {EventsPerSecond: math.NaN(), Partitions: 1}, {EventsPerSecond: math.Inf(1), Partitions: 1},
		{ChangesPerSecond: -0.1, Partitions: 1}, {RowsPerScan: -1, Partitions: 1}, {RowsPerScan: math.NaN(), Partitions: 1}, {ChangesPerSecond: 1e10, Partitions: 1}, {}, {Partitions: -5}, {Partitions: maxPartitions + 1},
	} {
		if l.Check() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if err := (Load{EventsPerSecond: maxRate, ChangesPerSecond: 0.5, Partitions: maxPartitions}).Check(); err != nil {
		t.Error(err)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.5: "0.5", 0.1: "0.1", 50e-6: "0.00005", 0.0123456: "0.0123", 1: "1", 999.5: "999.5", 1000: "1,000",
		262_800_000: "262,800,000", 1234567.8916: "1,234,567.892", 0.9999: "1",
	} {
		if got := Number(x); got != want {
			t.Errorf("%v is printed as %s, want %s", x, got, want)
		}
	}
}
