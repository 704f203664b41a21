// Package prices guarantees that there is one table of what Google charges: the bill of btf plan
// and the tables of costs in docs/ come from it. A table that is read has every price and no
// other, each of them finite and not negative.
package prices

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Name names a price.
type Name string

// Values of Name.
const (
	VCPUSecond      Name = "run.vCPUSecond"
	GiBSecond       Name = "run.gibSecond"
	Requests        Name = "run.millionRequests"
	Reads           Name = "firestore.100kReads"
	Writes          Name = "firestore.100kWrites"
	Deletes         Name = "firestore.100kDeletes"
	Throughput      Name = "pubsub.tib"    // of bytes published, and of bytes delivered
	Job             Name = "scheduler.job" // for a month
	Logs            Name = "logging.gib"
	NodeHour        Name = "bigtable.nodeHour"
	DataflowVCPU    Name = "dataflow.vCPUHour"
	DataflowMemory  Name = "dataflow.gibHour"
	DataflowStorage Name = "dataflow.diskGibHour"
)

// Unit says what a price is for: so many (Per) of what is counted.
type Unit struct {
	Counted string  // in the plural
	Per     float64 // what the price buys
	Bought  string  // Per in words, as in "1,000,000 requests"
}

var units = map[Name]Unit{
	VCPUSecond:      {"vCPU-seconds", 1, "vCPU-second"},
	GiBSecond:       {"GiB-seconds", 1, "GiB-second"},
	Requests:        {"requests", 1e6, "1,000,000 requests"},
	Reads:           {"reads", 1e5, "100,000 reads"},
	Writes:          {"writes", 1e5, "100,000 writes"},
	Deletes:         {"deletes", 1e5, "100,000 deletes"},
	Throughput:      {"bytes", 1 << 40, "TiB"},
	Job:             {"jobs", 1, "job"},
	Logs:            {"bytes", 1 << 30, "GiB"},
	NodeHour:        {"node-hours", 1, "node-hour"},
	DataflowVCPU:    {"vCPU-hours", 1, "vCPU-hour"},
	DataflowMemory:  {"GiB-hours", 1, "GiB-hour"},
	DataflowStorage: {"GiB-hours of disk", 1, "GiB-hour of disk"},
}

// Unit returns what a price of this name is for.
func (n Name) Unit() Unit { return units[n] }

// Table is what Google charges in one region.
type Table struct {
	Region   string `yaml:"region" json:"region"`
	Currency string `yaml:"currency" json:"currency"`
	// Date is the day on which the prices were written down.
	Date string `yaml:"date" json:"date"`
	// Verified says that somebody has compared the prices with their source on that day.
	Verified bool             `yaml:"verified" json:"verified"`
	Source   string           `yaml:"source" json:"source"`
	Prices   map[Name]float64 `yaml:"prices" json:"prices"`
}

//go:embed prices.yaml
var embedded []byte

// Default returns the table of this version.
func Default() (*Table, error) { return Parse(embedded) }

// Parse reads a table in YAML or JSON. The error names each price that is missing, unknown or
// no price.
func Parse(data []byte) (*Table, error) {
	var t Table
	if err := yaml.Load(data, &t, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("reading the table of prices: %w", err)
	}
	for _, field := range []struct{ name, value string }{{"region", t.Region}, {"currency", t.Currency}, {"date", t.Date}, {"source", t.Source}} {
		if field.value == "" {
			return nil, fmt.Errorf("reading the table of prices: it has no %s", field.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(units)) {
		if _, has := t.Prices[name]; !has {
			return nil, fmt.Errorf("reading the table of prices: it has no %s, for %s", name, name.Unit().Bought)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Prices)) {
		price := t.Prices[name]
		if _, known := units[name]; !known {
			return nil, fmt.Errorf("reading the table of prices: no part of a bill has the price %s", name)
		}
		if price < 0 || math.IsInf(price, 0) || math.IsNaN(price) {
			return nil, fmt.Errorf("reading the table of prices: %s is %v: want a number from 0", name, price)
		}
	}
	return &t, nil
}

// Cost returns the price of a quantity of what is counted.
func (t *Table) Cost(name Name, quantity float64) float64 {
	return quantity / name.Unit().Per * t.Prices[name]
}
