// Package write guarantees that a delivery is acknowledged only when everything it
// asks for is durable: every row applied, every record that can never be written
// handed to the failure policy, everything else skipped because the pipeline file
// says so. Whatever is not known to be applied is refused, and Pub/Sub delivers it
// again. Nothing is kept in memory past the response.
package write

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// Budget is how long one delivery may take: under the service's timeout (290 s),
// which is under the subscription's ack deadline (300 s).
const Budget = 270 * time.Second

// Applier applies entries to Bigtable. The result has an error for each entry: nil
// when it is applied, a *retry.Rejected when it can never be, any other when it is
// not known to be. Entries of one row are applied in order.
type Applier interface {
	Apply(ctx context.Context, entries []writer.Entry) []error
}

// DeadLetters keeps what the function gives up on. nil means that every letter is durable.
type DeadLetters interface {
	Put(ctx context.Context, letters []deadletter.Letter) error
}

// Config is what the function needs. All of it but DeadLetters is required; that one
// is where a policy of the file says dead-letter.
type Config struct {
	Pipeline    *pipeline.Pipeline
	Writer      Applier
	DeadLetters DeadLetters
	Limits      mapping.Limits
	Budget      time.Duration
	Logger      *slog.Logger
	Now         func() time.Time
	Report      func(context.Context, Summary)
}

// function is one write function.
type function struct {
	cfg     Config
	write   *mapping.Write
	records record.Decode
	shares  *shares
}

// New compiles the pipeline and returns the function as an HTTP handler of Pub/Sub
// deliveries. It fails where an expression does not compile.
func New(cfg Config) (http.Handler, error) {
	p := cfg.Pipeline
	compiled, err := mapping.Compile(p, cfg.Limits)
	if err != nil {
		return nil, err
	}
	if cfg.DeadLetters == nil && (p.Write.OnFailure == pipeline.PolicyDeadLetter || p.Write.OnUnmatched == pipeline.PolicyDeadLetter) {
		return nil, errors.New("a policy says dead-letter, and there is nowhere to put dead letters")
	}
	f := &function{cfg: cfg, write: compiled, shares: newShares(p, cfg.Now)}
	if f.records, err = record.ByFormat(string(p.Write.Format)); err != nil {
		return nil, err
	}
	return push.Handler(push.Config{
		MaxRequestBytes: p.Write.Limits.InFlight.MaxRequestBytes,
		Budget:          cfg.Budget,
		Logger:          cfg.Logger,
	}, f.deliver), nil
}

// delivery is one delivery on its way through the function.
type delivery struct {
	*push.Delivery
	records []record.Record
	summary Summary
	notes   int // failures logged
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
		return f.giveUp(ctx, d, []failure{f.malformed(d)})
	}
	d.records = f.records(d.Message.Data, d.Message.Attributes)
	result := f.write.Map(message(&d.Message), d.records, d.summary.Start)
	d.summary.Records, d.summary.Skipped = len(d.records), result.Skipped

	return f.shares.within(ctx, result, d.Size, func(ctx context.Context) error {
		return f.settle(ctx, d, result)
	})
}

// settle applies the rows and hands what can never be written to its policy.
func (f *function) settle(ctx context.Context, d *delivery, result *mapping.Result) error {
	failures := f.unwritable(d, result)
	rejected, err := f.apply(ctx, d, result.Rows)
	if err != nil {
		return err
	}
	if err := f.giveUp(ctx, d, append(failures, rejected...)); err != nil {
		return err
	}
	if len(result.Last) == 0 {
		return nil
	}
	if rejected, err = f.apply(ctx, d, result.Last); err != nil {
		return err
	}
	return f.giveUp(ctx, d, rejected)
}

func message(m *push.Message) *expr.Message {
	return &expr.Message{ID: m.ID, PublishTime: m.PublishTime, OrderingKey: m.OrderingKey, Attributes: m.Attributes, Subscription: m.Subscription}
}
