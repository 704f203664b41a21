// Package relay guarantees that what comes from a source reaches a sink at least
// once, in bounded memory: a position is committed only when everything up to it is
// acknowledged, whatever was read ahead; a slow sink slows the source down; and
// nothing is sent once the right to send it may be another's.
//
// Scans and change streams share it. It knows neither of them: a unit is a row or a
// change, and its meaning is the caller's.
package relay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Record is what a sink takes.
type Record struct {
	// Scope and Key are the same in every replay of the unit that made the record, and
	// differ from every other's: a scan and a row key. Index tells the records of one
	// unit apart; it is Single if a unit makes one at most.
	Scope, Key string
	Index      int
	// Body is a JSON text.
	Body []byte
	// OrderingKey is empty if the order does not matter.
	OrderingKey string
	// Attributes are read only: records may share them.
	Attributes map[string]string
}

// Single is the Index of a record whose unit cannot make another.
const Single = -1

// ID returns 32 hexadecimal digits that are the same in every replay of the record and
// differ from every other's: a hash of scope and key, and of the index where it counts,
// each with its length before it.
func (r *Record) ID() string {
	var room [256]byte
	b := room[:0]
	for _, part := range [...]string{r.Scope, r.Key} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	if r.Index != Single {
		b = binary.AppendUvarint(b, uint64(r.Index))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Source yields units in order.
type Source[U any] interface {
	// Read calls yield with each unit, from one goroutine, until there are no more,
	// yield returns false or ctx ends. What it has yielded before an error stands.
	Read(ctx context.Context, yield func(U) bool) error
}

// Sink takes records. It is called by one goroutine at a time.
type Sink interface {
	// Send returns when every record is durable or will not be. The result is nil
	// if all are durable. Otherwise it has an error for each: nil, a *retry.Rejected if the sink
	// will never take the record, or why it is not known to be durable.
	Send(ctx context.Context, records []Record) []error
}

// ErrOvertaken: the time for which units may be sent is over.
var ErrOvertaken = errors.New("what is left may be another's to send")

// Failure is a unit that can never be delivered, or one of its records.
type Failure[P any] struct {
	Position P       // of the unit
	Record   *Record // nil: no record can be made of the unit
	Err      error   // quotes nothing of the unit
}

// Body returns that of the record, or nil if there is no record.
func (f *Failure[P]) Body() []byte {
	if f.Record == nil {
		return nil
	}
	return f.Record.Body
}

// Size is what one unit counts.
type Size struct {
	Rows    int
	Dropped int // rows in it that cannot be read and are left out
	Bytes   int64
}

// Counts are of what is acknowledged.
type Counts struct {
	Rows    int64
	Records int64 // that the sink took
	Dropped int64 // rows or records that the failure policy took
	Bytes   int64 // of the units
}

// Job is one run of the relay, of units U whose positions are P.
type Job[U, P any] struct {
	Source Source[U]
	Sink   Sink
	// Size measures a unit.
	Size func(U) Size
	// Map appends the records of a unit, none for one that yields nothing. An error
	// says that they can never be made.
	Map func(u U, to []Record) ([]Record, error)
	// GiveUp takes what can never be delivered. nil means that it is taken care of;
	// an error stops the relay before the first of them.
	GiveUp func(context.Context, []Failure[P]) error
	// Position is where the source stands after a unit; it must not hold on to the unit.
	Position func(U) P
	// Commit makes durable that all up to last is acknowledged. c is the total since
	// Run was called.
	Commit func(ctx context.Context, last P, c Counts) error
	// Held returns until when units may be sent; a commit may move it. nil: for ever.
	Held func() time.Time
	// MaxRows and MaxBytes end a batch, whichever is reached first; one batch is sent
	// while the next is being read. A unit over MaxBytes goes alone.
	MaxRows  int
	MaxBytes int64
	// Linger is how long a batch waits to be filled.
	Linger time.Duration
	// CommitEvery is the shortest time between two commits, unless there is less than
	// that left until Held. Units that made no record are committed only with others,
	// or when two thirds of the time until Held have passed.
	CommitEvery time.Duration
	// FirstCommit, if it is not 0, is after how long the first units are committed
	// already, also if they made no record.
	FirstCommit time.Duration
	// Memory bounds the bytes of units that several runs hold together; nil: each run is
	// bounded by MaxBytes alone.
	Memory *Memory
}

// Result is how far Run has come. What is in it and was not committed yet is the
// caller's to commit.
type Result[P any] struct {
	Last  P    // the position up to which all is acknowledged
	Moved bool // there is one
	Counts
	Done bool // the source has nothing more
}

// Run relays until the source has nothing more, slice ends, or something fails: the
// end of slice ends the reading, and what was read is delivered still, under ctx. The
// result holds beside an error too.
func Run[U, P any](ctx, slice context.Context, j Job[U, P]) (Result[P], error) {
	r := newRun(j)
	reading, stop := context.WithCancel(slice)
	defer context.AfterFunc(ctx, stop)()
	defer r.memory.close()
	q := newQueue(j.MaxRows, j.MaxBytes, j.Size, r.memory)
	whole := true // nothing that the source yielded was left out
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.finish(j.Source.Read(reading, func(u U) bool {
			whole = reading.Err() == nil && q.put(reading, u)
			return whole
		}))
	}()
	err := r.drain(ctx, q)
	stop()
	<-ended
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case q.err == nil && whole:
		r.result.Done = true
	case slice.Err() == nil: // else it is why, whatever the source made of it
		err = fmt.Errorf("reading: %w", q.err)
	}
	return r.result, err
}
