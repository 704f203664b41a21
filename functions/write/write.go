// Package write guarantees that a delivery is acknowledged only when everything it
// asks for is durable: every row applied, every record that can never be written
// handed to the failure policy, everything else skipped because the pipeline file
// says so. Whatever is not known to be applied is refused, and Pub/Sub delivers it
// again. Nothing is kept in memory past the response.
package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
	"github.com/bigtable-functions/bigtable-functions/internal/settle"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// Budget is how long one delivery may take: under the service's timeout (290 s),
// which is under the subscription's ack deadline (300 s).
const Budget = 270 * time.Second

// DeadLetters keeps what the function gives up on. nil means that every letter is durable.
type DeadLetters interface {
	Put(ctx context.Context, letters []deadletter.Letter) error
}

// Config is what the function needs. All of it is required, but DeadLetters only where
// a policy of the file says dead-letter.
type Config struct {
	Pipeline    *pipeline.Pipeline
	Compiled    *mapping.Write // its write section, as lint.Load has it
	Writer      settle.Writer
	DeadLetters DeadLetters
	Budget      time.Duration
	Logger      *slog.Logger
	Now         func() time.Time
	Report      func(context.Context, Summary)
}

// function is one write function.
type function struct {
	cfg     Config
	records record.Bounded
	shares  *shares
}

// New returns the function as an HTTP handler of Pub/Sub deliveries. It fails where a
// policy needs DeadLetters that are not there.
func New(cfg Config) (http.Handler, error) {
	p := cfg.Pipeline
	if cfg.DeadLetters == nil && (p.Write.OnFailure == pipeline.PolicyDeadLetter || p.Write.OnUnmatched == pipeline.PolicyDeadLetter) {
		return nil, errors.New("a policy says dead-letter, and there is nowhere to put dead letters")
	}
	f := &function{cfg: cfg, shares: newShares(p, cfg.Now)}
	var err error
	if f.records, err = record.BoundedByFormat(string(p.Write.Format)); err != nil {
		return nil, err
	}
	return push.Handler(push.Config{
		MaxRequestBytes: p.Write.Limits.InFlight.MaxRequestBytes,
		Budget:          cfg.Budget,
		Logger:          cfg.Logger,
	}, f.deliver), nil
}

// Bounds of the records that are decoded at once, in bytes raw and decoded. As many of them
// are mapped and applied together as mapping.Session.Map takes. The rest of a message waits
// as the bytes that it came as, so that one of a million small records needs no more memory than one of a thousand.
const (
	stepRecords = 1000
	stepBytes   = 4 << 20
)

// sizeOfCounted is the size of an element of delivery.counted, in bytes.
const sizeOfCounted = 100

// delivery is one delivery on its way through the function.
type delivery struct {
	*push.Delivery
	session *mapping.Session
	step    []record.Record // decoded and not yet settled
	before  int             // records of the steps before
	refused refusals
	post    post
	last    last
	counted map[string]struct{} // see settle.Settler
	summary Summary
	notes   int // failures logged
}

// refusals are what refuses a delivery once its good records are written.
type refusals struct {
	count int
	first error
}

func (r *refusals) add(err error) {
	if r.count++; r.count == 1 {
		r.first = err
	}
}

func (r *refusals) err() error {
	if r.count == 0 {
		return nil
	}
	return fmt.Errorf("%d records can never be written, the first: %w", r.count, r.first)
}

// record returns a record of the step at hand, or nil for one of a step before.
func (d *delivery) record(i int) *record.Record {
	if i < d.before {
		return nil
	}
	return &d.step[i-d.before]
}

// deliver is what happens to one delivery.
func (f *function) deliver(ctx context.Context, in *push.Delivery) error {
	d := &delivery{Delivery: in, summary: Summary{Start: f.cfg.Now(), PublishTime: in.Message.PublishTime, Bytes: in.Size}}
	err := f.handle(ctx, d)
	d.summary.Refused = err
	d.summary.Duration = f.cfg.Now().Sub(d.summary.Start)
	f.cfg.Report(ctx, d.summary)
	return err
}

func (f *function) handle(ctx context.Context, d *delivery) error {
	if d.Malformed != nil {
		d.summary.Records = 1
		f.giveUp(ctx, d, []failure{f.malformed(d)})
		if err := f.keepLetters(ctx, d); err != nil {
			return err
		}
		return d.refused.err()
	}
	err := f.steps(ctx, d, func(result *mapping.Result) error {
		d.summary.Records += result.Records
		d.summary.Skipped += result.Skipped
		free := d.last.keep(result)
		if err := f.settle(ctx, d, f.unwritable(d, result), result.Rows); err != nil {
			return err
		}
		d.Memory.Release(free)
		return nil
	})
	if err != nil {
		return err
	}
	return f.finish(ctx, d)
}

// steps decodes and maps the message, some of it at a time, and calls do with the result of
// each step, which gives back the charge for it. The charge for the records is given back here.
func (f *function) steps(ctx context.Context, d *delivery, do func(*mapping.Result) error) error {
	most := f.cfg.Pipeline.Write.Limits.InFlight.MaxRecordBytes
	d.session = f.cfg.Compiled.Start(message(&d.Message), d.summary.Start)
	charge := func(n int64) error { return d.Memory.Charge(ctx, n) }
	d.session.Bound(most, charge)
	d.before = 0
	size := int64(0)
	for r := range f.records(d.Message.Data, d.Message.Attributes, record.Memory{Most: most, Charge: charge}) {
		if ctx.Err() != nil || errors.Is(r.Err, push.ErrOverloaded) {
			return cmp.Or(context.Cause(ctx), r.Err)
		}
		if len(d.step) == stepRecords || size >= stepBytes {
			if err := f.mapStep(ctx, d, do); err != nil {
				return err
			}
			size = 0
		}
		d.step, size = append(d.step, r), size+int64(len(r.Raw))+r.Size
	}
	return f.mapStep(ctx, d, do)
}

// mapStep maps the records at hand and lets go of them.
func (f *function) mapStep(ctx context.Context, d *delivery, do func(*mapping.Result) error) error {
	for at := 0; at < len(d.step); {
		result, err := d.session.Map(ctx, d.step[at:])
		if err != nil {
			return err
		}
		if err := do(result); err != nil {
			return err
		}
		at += result.Records
	}
	var size int64
	for i := range d.step {
		size += d.step[i].Size
	}
	d.before += len(d.step)
	clear(d.step)
	d.step = d.step[:0]
	d.Memory.Release(size)
	return nil
}

// last holds the rows that are applied when everything else of the message is. Those of one
// step are kept; if there are more, none are kept, and the message is mapped again.
type last struct {
	rows []*mapping.Row
	made int64 // the charge for them, which stays
	many bool
}

// keep returns how much of the charge can be given back.
func (l *last) keep(result *mapping.Result) (free int64) {
	if len(result.Last) == 0 {
		return result.Made
	}
	if l.many = l.many || len(l.rows) > 0; l.many {
		free = result.Made + l.made
		l.rows, l.made = nil, 0
		return free
	}
	l.rows, l.made = result.Last, result.Made
	return 0
}

// settle applies rows and hands what can never be written to its policy. An error means
// that something is not known to be applied.
func (f *function) settle(ctx context.Context, d *delivery, failures []failure, rows []*mapping.Row) error {
	return f.shares.within(ctx, rows, d.Size, func(ctx context.Context) error {
		rejected, err := f.apply(ctx, d, rows)
		if err != nil {
			return err
		}
		f.giveUp(ctx, d, append(failures, rejected...))
		return nil
	})
}

// finish keeps the dead letters and applies what goes last, unless the delivery is refused
// anyway and comes back. Letters are kept first: rows that go last have to be acknowledged soon.
func (f *function) finish(ctx context.Context, d *delivery) error {
	if err := f.keepLetters(ctx, d); err != nil {
		return err
	}
	if err := d.refused.err(); err != nil {
		return err
	}
	var err error
	switch {
	case d.last.many:
		// Records that are refused here were refused when the rest was mapped.
		err = f.steps(ctx, d, func(result *mapping.Result) error {
			if err := f.settle(ctx, d, nil, result.Last); err != nil {
				return err
			}
			d.Memory.Release(result.Made)
			return nil
		})
	case len(d.last.rows) > 0:
		err = f.settle(ctx, d, nil, d.last.rows)
	}
	if err != nil {
		return err
	}
	if err := f.keepLetters(ctx, d); err != nil {
		return err
	}
	return d.refused.err()
}

// apply applies rows and returns those that can never be written. An error means that
// something is not known to be applied.
func (f *function) apply(ctx context.Context, d *delivery, rows []*mapping.Row) ([]failure, error) {
	for _, r := range rows {
		d.summary.table(r.Schema.Name).Sent++
	}
	s := settle.Settler{Writer: f.cfg.Writer, MaxBytes: int(f.cfg.Pipeline.Write.Limits.Batch.MaxBytes), Counted: d.counted}
	known := len(d.counted)
	err := s.Apply(ctx, rows)
	d.counted = s.Counted
	d.summary.Applied += s.Applied
	if errors.Is(err, writer.ErrNotAdmitted) {
		err = errors.Join(push.ErrOverloaded, err)
	}
	if err != nil {
		return nil, err
	}
	if err := d.Memory.Charge(ctx, sizeOfCounted*int64(len(d.counted)-known)); err != nil {
		return nil, err
	}
	var failures []failure
	var size int64 // of letters that hold entries; others share the message's memory
	for _, r := range s.Rejected {
		x := f.refusedRow(d, r)
		failures = append(failures, x)
		if f.policy(&x) == pipeline.PolicyDeadLetter && x.letter.Kind != deadletter.KindRecord && !d.post.tooMany {
			size += int64(len(x.letter.Data))
		}
	}
	if err := d.Memory.Charge(ctx, size); err != nil {
		return nil, err
	}
	return failures, nil
}

func message(m *push.Message) *expr.Message {
	return &expr.Message{ID: m.ID, PublishTime: m.PublishTime, OrderingKey: m.OrderingKey, Attributes: m.Attributes, Subscription: m.Subscription}
}
