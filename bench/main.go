// Command bench measures the function write, as it is deployed, beside what one writes
// first (a CloudEvent function over the official client) and beside decoding alone. All
// write to a server that acknowledges at once, so that they are measured and it is not.
//
//	cd bench && go run .          # the whole table: some minutes on a quiet machine
//	cd bench && go run . -quick   # the same rows, few events: to see that it works
//	cd bench && go run . -sweep   # settings of batch, over a server that takes 5 ms
//
// The figure to compare is the CPU time for each record: it moves little on a noisy
// machine. It reads /proc and so needs Linux.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// childVariable makes this program one of the baselines instead.
const childVariable = "BENCH_CHILD"

func main() {
	if kind := os.Getenv(childVariable); kind != "" {
		log.Fatal(serveBaseline(kind))
	}
	quick := flag.Bool("quick", false, "few events")
	rounds := flag.Int("rounds", 3, "how often each row is measured; the median by CPU time is printed")
	only := flag.String("only", "", "only rows whose name contains this")
	sweep := flag.Bool("sweep", false, "measure settings of limits.batch instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{rounds: *rounds, records: 60_000, warm: 6_000, starts: 7, only: *only}
	if *quick {
		b.rounds, b.records, b.warm, b.starts = 1, 4_000, 500, 2
	}
	rows := b.rows()
	if *sweep {
		rows = b.sweep()
	}
	if err := b.run(ctx, rows, !*sweep); err != nil {
		log.Fatal(err)
	}
}

type bench struct {
	rounds, records, warm, starts int
	only                          string
	function                      string // path of the deployed binary
	server                        *ackServer
}

func (b *bench) run(ctx context.Context, rows []row, cold bool) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.build(ctx, dir); err != nil {
		return err
	}
	if b.server, err = startAckServer(); err != nil {
		return err
	}
	defer b.server.stop()
	fmt.Printf("%s, %s/%s, %d CPUs, %s, 64 concurrent requests\n\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if err := b.table(ctx, rows); err != nil || !cold {
		return err
	}
	return b.coldStarts(ctx)
}

// build compiles the function from the module above.
func (b *bench) build(ctx context.Context, dir string) error {
	b.function = filepath.Join(dir, "functions")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.function, "./cmd/functions")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the function: %w", err)
	}
	return nil
}

// row is one line of the table.
type row struct {
	name  string
	start func(ctx context.Context) (*process, error)
	load  load
	delay time.Duration // of the server
}

func (b *bench) rows() []row {
	rows := []row{
		{name: "decode only", start: b.baseline("floor"), load: load{per: 1}},
		{name: "CloudEvent + Table.Apply", start: b.baseline("naive"), load: load{per: 1}},
		{name: "**write**", start: b.write("json"), load: load{per: 1}},
	}
	for _, bad := range []float64{0.001, 0.01, 0.1} {
		rows = append(rows, row{name: "**write**", start: b.write("json"), load: load{per: 1, bad: bad}})
	}
	rows = append(rows,
		row{name: "decode only", start: b.baseline("floor"), load: load{per: 500}},
		row{name: "CloudEvent + ApplyBulk", start: b.baseline("naive"), load: load{per: 500}},
		row{name: "**write**", start: b.write("ndjson"), load: load{per: 500}})
	for _, bad := range []float64{0.001, 0.01, 0.1} {
		rows = append(rows, row{name: "**write**", start: b.write("ndjson"), load: load{per: 500, bad: bad}})
	}
	return rows
}

// sweep are settings of limits.batch, over a server with a usual latency.
func (b *bench) sweep() []row {
	var rows []row
	for _, per := range []int{1, 500} {
		for _, entries := range []int{100, 500, 2000} {
			for _, concurrency := range []int{1, 4, 16} {
				format := map[bool]string{true: "json", false: "ndjson"}[per == 1]
				limits := fmt.Sprintf("{batch: {maxEntries: %d, concurrency: %d}}", entries, concurrency)
				rows = append(rows, row{
					name: limits, start: b.write(format + "\n  limits: " + limits), load: load{per: per}, delay: 5 * time.Millisecond,
				})
			}
		}
	}
	return rows
}

func (b *bench) table(ctx context.Context, rows []row) error {
	fmt.Println("| function | records per event | refused by Bigtable | events/s | records/s | CPU µs per record | p50 | p99 | peak memory |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		name := fmt.Sprintf("%s %d %g", r.name, r.load.per, r.load.bad)
		if b.only != "" && !contains(name, b.only) {
			continue
		}
		var all []result
		for range b.rounds {
			one, err := b.measure(ctx, r)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, one)
		}
		slices.SortFunc(all, func(x, y result) int { return cmp.Compare(x.cpu, y.cpu) })
		m := all[len(all)/2]
		fmt.Printf("| %s | %d | %g %% | %.0f | %.0f | %.1f | %s | %s | %d MiB |\n", r.name, r.load.per, r.load.bad*100,
			m.events, m.events*float64(r.load.per), m.cpu, m.p50, m.p99, m.peak)
	}
	return nil
}

// measure starts the process of a row anew, so that rows do not warm each other.
func (b *bench) measure(ctx context.Context, r row) (result, error) {
	b.server.delay.Store(int64(r.delay))
	p, err := r.start(ctx)
	if err != nil {
		return result{}, err
	}
	defer p.stop()
	l := r.load
	l.url, l.pid = p.url, p.cmd.Process.Pid
	events := max(64, b.records/l.per)
	if l.per > 1 {
		events = max(64, 4*b.records/l.per)
	}
	return l.run(ctx, max(64, b.warm/l.per), events)
}

// coldStarts prints how long it takes from the start of a process to its first
// acknowledgement, which is that of an applied row.
func (b *bench) coldStarts(ctx context.Context) error {
	fmt.Println()
	fmt.Println("| function | start to first applied row |")
	fmt.Println("|---|---|")
	for _, r := range []row{
		{name: "CloudEvent + Table.Apply", start: b.baseline("naive"), load: load{per: 1}},
		{name: "**write**", start: b.write("json"), load: load{per: 1}},
	} {
		if b.only != "" && !contains("cold "+r.name, b.only) {
			continue
		}
		var all []time.Duration
		for range b.starts {
			began := time.Now()
			p, err := r.start(ctx)
			if err != nil {
				return err
			}
			l := r.load
			l.url = p.url
			err = l.first(ctx)
			all = append(all, time.Since(began))
			p.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
		slices.Sort(all)
		fmt.Printf("| %s | %d ms (%d to %d) |\n", r.name, all[len(all)/2].Milliseconds(), all[0].Milliseconds(), all[len(all)-1].Milliseconds())
	}
	return nil
}
