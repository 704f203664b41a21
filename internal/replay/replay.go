// Package replay makes rows of messages that the function write or Pub/Sub gave up on, and
// guarantees that they are those that were meant: an entry as it was sent, a record under its
// message's id and publish time and under the mapping that failed alone, an undelivered message
// whole, at its own publish time. If it cannot make such rows of a message, that is an error,
// and nothing of the message is applied.
package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
	"github.com/bigtable-functions/bigtable-functions/internal/settle"
)

// Attributes that Pub/Sub itself gives a message which it moves to a dead-letter topic.
// Source: https://docs.cloud.google.com/pubsub/docs/handling-failures#track-delivery-attempts
const (
	movedPrefix      = "CloudPubSubDeadLetterSource"
	movedPublishTime = movedPrefix + "TopicPublishTime"
	movedFrom        = movedPrefix + "Subscription"
	movedFromProject = movedPrefix + "SubscriptionProject"
)

// ErrNewID: Pub/Sub has given an undelivered message a new id, the original one is not
// known, and other rows or other tokens would come of it.
var ErrNewID = errors.New("what it writes depends on message.id, which Pub/Sub does not keep for a message that it moves: --new-ids replays it under the new one, which may apply again what was applied")

// Reader reads messages of the subscriptions NAME-dead-letter and NAME-undelivered of one
// pipeline. It is safe for use by one goroutine.
type Reader struct {
	p       *pipeline.Pipeline
	limits  mapping.Limits
	newIDs  bool
	decode  record.Bounded
	one     record.One
	memory  record.Memory // of each record
	whole   *mapping.Write
	partial map[string]*mapping.Write // of one mapping alone, by its name
}

// NewReader compiles the pipeline. newIDs lets undelivered messages be applied under
// the ids that Pub/Sub gave them when it moved them.
func NewReader(p *pipeline.Pipeline, limits mapping.Limits, newIDs bool) (*Reader, error) {
	whole, err := mapping.Compile(p, limits)
	if err != nil {
		return nil, err
	}
	decode, err := record.BoundedByFormat(string(p.Write.Format))
	if err != nil {
		return nil, err
	}
	one, err := record.OneByFormat(string(p.Write.Format))
	if err != nil {
		return nil, err
	}
	return &Reader{p: p, limits: limits, newIDs: newIDs, decode: decode, one: one, whole: whole, memory: record.Memory{Most: p.Write.Limits.InFlight.MaxRecordBytes}, partial: map[string]*mapping.Write{}}, nil
}

// Work is what one message asks for.
type Work struct {
	// Letter is the dead letter; its Kind is empty for a message that Pub/Sub moved, and
	// MessageID, PublishTime and Data are then that message's.
	Letter deadletter.Letter
	// Since is when it was given up.
	Since time.Time
	// Rows are those that Apply applies.
	Rows []*mapping.Row
	// Tables are the names in the pipeline file of the tables that it is for.
	Tables []string
	// Skipped counts records that the pipeline file says to skip.
	Skipped int
	// Refused says why records of it can still not be written. They quote no data.
	Refused []error

	first, last []*mapping.Row // the last go once the first are applied
	maxBytes    int            // of one request
}

// Apply applies the rows, as the function write does. An error means that one of them is
// refused, or not known to be applied: the message is to be kept.
func (w *Work) Apply(ctx context.Context, to settle.Writer) error {
	s := settle.Settler{Writer: to, MaxBytes: w.maxBytes}
	for _, rows := range [][]*mapping.Row{w.first, w.last} {
		if err := s.Apply(ctx, rows); err != nil {
			return err
		}
		if n := len(s.Rejected); n > 0 {
			return fmt.Errorf("%d rows are refused, the first: %w", n, s.Rejected[0].Reason)
		}
	}
	return nil
}

// Read reads a message of the subscription NAME-dead-letter or NAME-undelivered. now is the
// time of markers. An error means that it is none, or that it cannot be replayed as it was
// meant; the Work then still says what is known of it.
//
// A letter is taken from NAME-dead-letter only, and never if Pub/Sub says that it moved the
// message: such a message was sent by a publisher, which may give it a letter's attributes.
func (r *Reader) Read(m *push.Message, now time.Time) (*Work, error) {
	if moved(m.Attributes) || !strings.HasSuffix(m.Subscription, "/subscriptions/"+pipeline.TopicDeadLetter.Of(r.p.Name)) {
		return r.undelivered(m, now)
	}
	letter, err := deadletter.Decode(m.Data, m.Attributes)
	if errors.Is(err, deadletter.ErrNoLetter) {
		return &Work{Since: m.PublishTime}, errors.New("neither a dead letter nor a message that Pub/Sub moved")
	}
	if err != nil {
		return &Work{Since: m.PublishTime}, err
	}
	out := &Work{Letter: letter, Since: letter.Time, maxBytes: r.maxBytes()}
	switch letter.Kind {
	case deadletter.KindEntry, deadletter.KindCheckAndMutate:
		return out, r.entry(out)
	case deadletter.KindRecord:
		return out, r.record(out, now)
	case deadletter.KindRequest:
		return out, errors.New("its request was no message of Pub/Sub, and there is nothing to map")
	}
	return out, fmt.Errorf("a dead letter of kind %s is not one of write", letter.Kind)
}

func (r *Reader) maxBytes() int { return int(r.p.Write.Limits.Batch.MaxBytes) }

// moved reports whether Pub/Sub has moved the message, which it says in attributes of its own.
func moved(attributes map[string]string) bool {
	for name := range attributes {
		if strings.HasPrefix(name, movedPrefix) {
			return true
		}
	}
	return false
}

// entry takes an entry as it was sent, where the file as it is now allows it.
func (r *Reader) entry(out *Work) error {
	if _, schema, err := r.whole.Table(out.Letter.Table); err == nil {
		out.Tables = []string{schema.Name} // also of one that is refused, for filters
	}
	e, err := record.EntryOf(&out.Letter, r.memory)
	if err != nil {
		return err
	}
	row, err := r.whole.Entry(e)
	if err != nil {
		return err
	}
	out.Rows, out.first = []*mapping.Row{row}, []*mapping.Row{row}
	return nil
}

// record maps a record as it was in its message, at its place, and only with the mapping
// that refused it: the rows of the other mappings are applied.
func (r *Reader) record(out *Work, now time.Time) error {
	l := &out.Letter
	w := r.whole
	if l.Mapping != "" {
		var err error
		if w, err = r.only(l.Mapping, out); err != nil {
			return err
		}
	}
	if l.MessageID == "" || l.Origin == nil {
		return errors.New("it has no message id, or not the attribute message, which every letter of a record has: nothing says how to map it")
	}
	message := &expr.Message{
		ID: l.MessageID, PublishTime: l.PublishTime, OrderingKey: l.Origin.OrderingKey,
		Attributes: l.Origin.Attributes, Subscription: l.Origin.Subscription,
	}
	if l.Origin.Whole {
		r.take(out, w, message, slices.Collect(r.decode(l.Data, message.Attributes, r.memory)), now)
		return nil
	}
	r.take(out, w, message, []record.Record{r.one(l.Data, message.Attributes, r.memory)}, now)
	return nil
}

// only compiles the pipeline with one mapping.
func (r *Reader) only(name string, out *Work) (*mapping.Write, error) {
	i := slices.IndexFunc(r.p.Write.Mappings, func(m *pipeline.Mapping) bool { return m.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("mapping %s is not in the pipeline file any more: its letters are applied once a mapping of the file has this name", name)
	}
	out.Tables = []string{r.p.Write.Mappings[i].Table.Name}
	if r.partial[name] == nil {
		one, write := *r.p, *r.p.Write
		write.Mappings = r.p.Write.Mappings[i : i+1]
		one.Write = &write
		w, err := mapping.Compile(&one, r.limits)
		if err != nil {
			return nil, err
		}
		r.partial[name] = w
	}
	return r.partial[name], nil
}

// undelivered maps a message that Pub/Sub gave up on, at its own publish time.
func (r *Reader) undelivered(m *push.Message, now time.Time) (*Work, error) {
	out := &Work{Since: m.PublishTime, Letter: deadletter.Letter{MessageID: m.ID, Data: m.Data}, maxBytes: r.maxBytes()}
	published := m.Attributes[movedPublishTime]
	if published == "" {
		return out, fmt.Errorf("neither a dead letter nor a message that Pub/Sub moved: it has no attribute %s", movedPublishTime)
	}
	var err error
	if out.Letter.PublishTime, err = time.Parse(time.RFC3339Nano, published); err != nil {
		return out, fmt.Errorf("attribute %s is no time", movedPublishTime)
	}
	if requests := pipeline.TopicScanRequests.Of(r.p.Name); m.Attributes[movedFrom] == requests {
		return out, fmt.Errorf("a request for a scan, which is no record: publish it again to %s, or acknowledge it", requests)
	}
	message := &expr.Message{
		ID: m.ID, PublishTime: out.Letter.PublishTime.UTC(), OrderingKey: m.OrderingKey, Attributes: ownAttributes(m.Attributes),
		Subscription: "projects/" + m.Attributes[movedFromProject] + "/subscriptions/" + m.Attributes[movedFrom],
	}
	result := r.take(out, r.whole, message, slices.Collect(r.decode(m.Data, message.Attributes, r.memory)), now)
	if r.newIDs {
		return out, nil
	}
	other := *message
	other.ID += "'"
	if !same(result, r.whole.Map(&other, slices.Collect(r.decode(m.Data, other.Attributes, r.memory)), now)) {
		return out, ErrNewID
	}
	return out, nil
}

// ownAttributes leaves out what Pub/Sub added.
func ownAttributes(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasPrefix(name, movedPrefix) })
	return out
}

// take maps records into out, from their place in the message on.
func (r *Reader) take(out *Work, w *mapping.Write, message *expr.Message, records []record.Record, now time.Time) *mapping.Result {
	place := 0
	if out.Letter.Origin != nil {
		place = out.Letter.Origin.Place
	}
	result := w.MapAt(message, records, now, place)
	out.Rows, out.first, out.last = slices.Concat(result.Rows, result.Last), result.Rows, result.Last
	out.Skipped = result.Skipped
	for _, x := range result.Rejected {
		out.Refused = append(out.Refused, x)
		if i := slices.IndexFunc(r.p.Write.Mappings, func(m *pipeline.Mapping) bool { return m.Name == x.Mapping }); i >= 0 {
			out.is(r.p.Write.Mappings[i].Table.Name)
		}
	}
	if r.p.Write.OnUnmatched == pipeline.PolicySkip {
		out.Skipped += len(result.Unmatched)
		result.Unmatched = nil
	}
	for range result.Unmatched {
		out.Refused = append(out.Refused, mapping.ErrUnmatched)
	}
	for _, row := range out.Rows {
		out.is(row.Schema.Name)
	}
	return result
}

// is adds a table.
func (w *Work) is(table string) {
	if !slices.Contains(w.Tables, table) {
		w.Tables = append(w.Tables, table)
	}
}

// same reports whether two results write the same.
func same(a, b *mapping.Result) bool {
	x, y := slices.Concat(a.Rows, a.Last), slices.Concat(b.Rows, b.Last)
	return slices.EqualFunc(x, y, func(a, b *mapping.Row) bool {
		return a.Table == b.Table && proto.Equal(a.Entry, b.Entry) && proto.Equal(a.Unless, b.Unless)
	})
}
