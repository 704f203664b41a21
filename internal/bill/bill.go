// Package bill says what a month of a pipeline costs before it is deployed, and guarantees that
// each amount is a quantity times a price of one table, both of which it returns. Loads and
// quantities are estimates; Assumptions says on what they rest.
package bill

import (
	"fmt"
	"math"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/prices"
)

// What a month and its requests are taken for.
const (
	Hours   = 730 // in a month
	Seconds = Hours * 3600

	// EventBytes is the size of a message. Pub/Sub charges no less for a delivery.
	EventBytes = 1000
	// LogBytes is the size of the entry that Cloud Run writes for a request.
	LogBytes = 1000
	// EventCPU is the processor time of an event of one record: README.md has its measurement.
	EventCPU = 50e-6
	// Use is the part of its vCPU that an instance is busy before Cloud Run starts another.
	Use = 0.6
	// Tick is the unit, in seconds, to which Cloud Run rounds the time of an instance up.
	Tick = 0.1
	// Memory is that of an instance, in GiB. It has one vCPU.
	Memory = 0.5
)

// Load is what a pipeline is given to do. A rate is an average over the month.
type Load struct {
	EventsPerSecond float64 `json:"eventsPerSecond"` // messages published to NAME-events
	// These two are those of each change stream of the file.
	ChangesPerSecond float64 `json:"changesPerSecond"`
	Partitions       int     `json:"partitions"`
	// RowsPerScan is how many rows each run of a scheduled scan reads.
	RowsPerScan float64 `json:"rowsPerScan"`
}

// These bound a Load far above what a table bears.
const (
	maxRows       = 1e15
	maxRate       = 1e9
	maxPartitions = 1_000_000
)

// Check returns an error if the load is none.
func (l Load) Check() error {
	for _, rate := range []struct {
		name  string
		value float64
	}{{"events per second", l.EventsPerSecond}, {"changes per second", l.ChangesPerSecond}} {
		if !(rate.value >= 0 && rate.value <= maxRate) {
			return fmt.Errorf("%v %s: want a number from 0 to %.0f", rate.value, rate.name, maxRate)
		}
	}
	if !(l.RowsPerScan >= 0 && l.RowsPerScan <= maxRows) {
		return fmt.Errorf("%v rows per scan: want a number from 0 to %.0f", l.RowsPerScan, maxRows)
	}
	if l.Partitions < 1 || l.Partitions > maxPartitions {
		return fmt.Errorf("%d partitions: want a number from 1 to %d", l.Partitions, maxPartitions)
	}
	return nil
}

// Line is one amount.
type Line struct {
	Of       string      `json:"of"` // the part of the pipeline that costs it
	What     string      `json:"what"`
	How      string      `json:"how"` // the arithmetic that gives the quantity
	Quantity float64     `json:"quantity"`
	Unit     string      `json:"unit"` // of the quantity
	Price    prices.Name `json:"price"`
	Dollars  float64     `json:"dollars"` // Quantity at the price, in whole cents
}

// Bill is what a month costs.
type Bill struct {
	Load    Load    `json:"load"`
	Lines   []Line  `json:"lines"`
	Dollars float64 `json:"dollars"` // the sum of the lines
	// Dataflow is the least that streaming jobs for the same work cost: a worker of the
	// smallest kind for each job, without the data that it processes.
	Dataflow Dataflow `json:"dataflow"`
	// Beside is what either way costs the same: one node of Bigtable.
	Beside Line `json:"beside"`
	// Assumptions says on what the quantities rest, and Without what is in no line.
	Assumptions []string      `json:"assumptions"`
	Without     []string      `json:"without"`
	Prices      *prices.Table `json:"prices"`
}

// Dataflow is what streaming jobs cost at least.
type Dataflow struct {
	Jobs    int     `json:"jobs"`
	Lines   []Line  `json:"lines"`
	Dollars float64 `json:"dollars"`
}

// Month returns the bill of a pipeline and a load that Check accepts.
func Month(p *pipeline.Pipeline, r *lint.Resources, l Load, table *prices.Table) (*Bill, error) {
	b := biller{table: table, bill: &Bill{Load: l, Lines: []Line{}, Prices: table}}
	if p.Write != nil {
		b.write(l.EventsPerSecond)
	}
	for _, s := range p.Scans {
		b.scan(s, l.RowsPerScan)
	}
	for _, c := range p.Changes {
		if err := b.stream(c, l.ChangesPerSecond, l.Partitions); err != nil {
			return nil, err
		}
	}
	if n := len(r.Schedules); n > 0 {
		b.add("schedules", "jobs", fmt.Sprintf("%d in the file", n), float64(n), prices.Job)
	}
	b.bill.Dataflow = b.dataflow(p)
	b.bill.Beside = b.line("Bigtable", "one node", fmt.Sprintf("1 × %d h", Hours), Hours, prices.NodeHour)
	b.bill.Assumptions, b.bill.Without = assumptions(p), without(p)
	for _, line := range b.bill.Lines {
		b.bill.Dollars += line.Dollars
	}
	b.bill.Dollars = cents(b.bill.Dollars)
	return b.bill, nil
}

// biller collects the lines of a bill.
type biller struct {
	table *prices.Table
	bill  *Bill
}

func cents(dollars float64) float64 { return math.Round(dollars*100) / 100 }

func (b *biller) line(of, what, how string, quantity float64, price prices.Name) Line {
	return Line{of, what, how, quantity, price.Unit().Counted, price, cents(b.table.Cost(price, quantity))}
}

func (b *biller) add(of, what, how string, quantity float64, price prices.Name) {
	b.bill.Lines = append(b.bill.Lines, b.line(of, what, how, quantity, price))
}

// write adds what the function write costs.
func (b *biller) write(rate float64) {
	const of = "write"
	events := rate * Seconds
	b.add(of, "requests", fmt.Sprintf("%s/s × %s s", Number(rate), Number(Seconds)), events, prices.Requests)
	// An instance is paid while it has a request. Those that come by chance leave it idle for
	// more than a tick with this probability. A load for which one vCPU is too little has
	// instances that are never idle.
	some, many := 1-math.Exp(-rate*Tick), rate*EventCPU/Use
	busy, how := some*Seconds, fmt.Sprintf("(1 − e^(−%s/s × %s s)) × %s s", Number(rate), Number(Tick), Number(Seconds))
	if many > some {
		busy, how = many*Seconds, fmt.Sprintf("%s/s × %s s ÷ %s × %s s", Number(rate), Number(EventCPU), Number(Use), Number(Seconds))
	}
	b.instance(of, how, busy)
	b.messages(of, "events, published and delivered", fmt.Sprintf("%s × %s bytes × 2", Number(events), Number(EventBytes)), events)
	b.requestLogs(of, events)
}

// instance adds the time of an instance with one vCPU.
func (b *biller) instance(of, how string, seconds float64) {
	b.add(of, "vCPU", how, seconds, prices.VCPUSecond)
	b.add(of, "memory", fmt.Sprintf("%s s × %s GiB", Number(seconds), Number(Memory)), seconds*Memory, prices.GiBSecond)
}

func (b *biller) messages(of, what, how string, n float64) {
	b.add(of, what, how, n*EventBytes*2, prices.Throughput)
}

func (b *biller) requestLogs(of string, requests float64) {
	b.add(of, "request logs", fmt.Sprintf("%s × %s bytes", Number(requests), Number(LogBytes)), requests*LogBytes, prices.Logs)
}

// stream adds what one change stream costs.
func (b *biller) stream(c *pipeline.Change, rate float64, partitions int) error {
	of := "changes " + c.Name
	u, how, err := usageOf(rate, partitions)
	if err != nil {
		return err
	}
	hourly := func(what string, each float64) string {
		return fmt.Sprintf("%s an hour (%s) × %s h", Number(each), how, Number(Hours))
	}
	b.add(of, "requests", hourly("requests", u.Requests), u.Requests*Hours, prices.Requests)
	b.instance(of, hourly("instance-seconds", u.InstanceSeconds), u.InstanceSeconds*Hours)
	b.add(of, "ledger reads", hourly("reads", u.Reads), u.Reads*Hours, prices.Reads)
	b.add(of, "ledger writes", hourly("writes", u.Writes), u.Writes*Hours, prices.Writes)
	b.add(of, "ledger deletes", hourly("deletes", u.Deletes), u.Deletes*Hours, prices.Deletes)
	tasks := u.Requests * Hours
	b.messages(of, "tasks, published and delivered", fmt.Sprintf("%s × %s bytes × 2", Number(tasks), Number(EventBytes)), tasks)
	if c.To.PubSub != nil {
		changes := rate * Seconds
		b.messages(of, "records, published and delivered once", fmt.Sprintf("%s/s × %s s × %s bytes × 2", Number(rate), Number(Seconds), Number(EventBytes)), changes)
	}
	b.requestLogs(of, tasks)
	return nil
}

// The smallest worker of a streaming job: an n1-standard-2 with Streaming Engine.
const (
	workerVCPU = 2
	workerGiB  = 7.5
	workerDisk = 30
)

// dataflow returns the least that a streaming job for write, and one for each change stream, cost.
func (b *biller) dataflow(p *pipeline.Pipeline) Dataflow {
	jobs := len(p.Changes)
	if p.Write != nil {
		jobs++
	}
	d := Dataflow{Jobs: jobs, Lines: []Line{}}
	if jobs == 0 {
		return d
	}
	for _, part := range []struct {
		what  string
		each  float64
		unit  string
		price prices.Name
	}{
		{"vCPU", workerVCPU, "vCPU", prices.DataflowVCPU},
		{"memory", workerGiB, "GiB", prices.DataflowMemory},
		{"disk", workerDisk, "GiB", prices.DataflowStorage},
	} {
		how := fmt.Sprintf("%d × %s %s × %d h", jobs, Number(part.each), part.unit, Hours)
		d.Lines = append(d.Lines, b.line("Dataflow", part.what, how, float64(jobs)*part.each*Hours, part.price))
		d.Dollars += d.Lines[len(d.Lines)-1].Dollars
	}
	d.Dollars = cents(d.Dollars)
	return d
}
