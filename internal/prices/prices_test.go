package prices

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestTheTableOfThisVersionIsWholeAndMarkedAsNotVerified(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if table.Verified {
		t.Error("the table says that its prices were compared with their source")
	}
	if got := table.Cost(Requests, 2.5e6); got != 1 {
		t.Errorf("2.5 million requests cost %v, want 1", got)
	}
	if got := table.Cost(Throughput, 1<<39); got != 20 {
		t.Errorf("half a TiB costs %v, want 20", got)
	}
}

func TestAPrintedTableIsReadAgain(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	table.Prices[NodeHour] = 1.25
	data, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if again.Prices[NodeHour] != 1.25 || again.Source != table.Source {
		t.Errorf("%+v, want %+v", again, table)
	}
}

func TestATableThatIsNotWholeIsRefused(t *testing.T) {
	whole := string(embedded)
	for _, c := range []struct{ from, to, want string }{
		{"  pubsub.tib: 40\n", "", "it has no pubsub.tib, for TiB"},
		{"pubsub.tib: 40", "pubsub.tb: 40", "it has no pubsub.tib"},
		{"pubsub.tib: 40", "pubsub.tib: 40\n  pubsub.month: 3", "no part of a bill has the price pubsub.month"},
		{"pubsub.tib: 40", "pubsub.tib: -40", "pubsub.tib is -40: want a number from 0"},
		{"pubsub.tib: 40", "pubsub.tib: .inf", "pubsub.tib is +Inf"},
		{"pubsub.tib: 40", "pubsub.tib: .nan", "pubsub.tib is NaN"},
		{"pubsub.tib: 40", "pubsub.tib: forty", "reading the table of prices"},
		{"pubsub.tib: 40", "pubsub.tib: 40\n  pubsub.tib: 41", "reading the table of prices"},
		{"region: us-central1", "region: ''", "it has no region"},
		{"date: 2026-12-01\n", "", "it has no date"},
		{"verified: false", "verifed: false", "reading the table of prices"},
		{whole, "", "reading the table of prices"},
	} {
		text := strings.Replace(whole, c.from, c.to, 1)
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: error %v, want one with %q", c.to, c.from, err, c.want)
		}
	}
}

var update = flag.Bool("update", false, "write the table of prices in the documents instead of comparing it")

const (
	costDoc    = "../../docs/cost.md"
	tableBegin = "<!-- Generated: go test ./internal/prices -update -->\n"
	tableEnd   = "<!-- End of what is generated. -->\n"
)

// amount is a price as the documents write it.
func amount(x float64) string {
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if _, fraction, _ := strings.Cut(text, "."); len(fraction) == 1 {
		text += "0"
	}
	return text
}

func TestTheDocumentsHaveThePricesOfTheTable(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	want := "| price | name | USD |\n|---|---|---:|\n"
	for _, name := range slices.Sorted(maps.Keys(table.Prices)) {
		want += "| " + name.Unit().Bought + " | `" + string(name) + "` | " + amount(table.Prices[name]) + " |\n"
	}
	data, err := os.ReadFile(costDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(data), tableBegin)
	got, after, found := strings.Cut(rest, tableEnd)
	if !found {
		t.Fatalf("%s lacks the place of the table", costDoc)
	}
	if *update {
		if err := os.WriteFile(costDoc, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s does not have the prices of the table: run this test with -update. It has\n%swant\n%s", costDoc, got, want)
	}
	if !strings.Contains(before, "written down on "+table.Date) {
		t.Errorf("%s does not name the date of the table, %s", costDoc, table.Date)
	}
	scans, err := os.ReadFile("../../docs/scans.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(scans)), " ")
	cents := func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
	for _, sentence := range []string{
		"That is $" + cents(table.Cost(Writes, 30_000)+table.Cost(Reads, 5000)) + ", at $" + amount(table.Prices[Writes]) + " for 100,000 writes and $" + amount(table.Prices[Reads]) + " for 100,000 reads",
		"which is $" + cents(table.Cost(Throughput, 100e6*250*2)) + " at $" + amount(table.Prices[Throughput]) + " a TiB",
		"which is $" + cents(table.Cost(VCPUSecond, 1200)+table.Cost(GiBSecond, 1200/4)) + " with 256 MiB, at $" + amount(table.Prices[VCPUSecond]) + " a vCPU-second and $" +
			amount(table.Prices[GiBSecond]) + " a GiB-second",
	} {
		if !strings.Contains(text, sentence) {
			t.Errorf("docs/scans.md does not say: %s", sentence)
		}
	}
}
