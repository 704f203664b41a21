// Package changeread guarantees that the changes of a partition come complete and in order,
// also if its stream breaks off: it then goes on behind the last change that was taken. The
// function changes and `btf tail` read by it.
package changeread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// Reader reads one partition. It is for one goroutine.
type Reader struct {
	Table     *btrpc.Table
	Conn      grpc.ClientConnInterface
	Opening   changestream.Opening // where it begins
	End       time.Time            // zero: never
	Heartbeat time.Duration        // how often the service says how far a silent partition has come
	// MaxBytes is the most bytes of a change; a larger one comes as Oversize. 0: any number.
	MaxBytes int64
	// Opens counts the streams that the service was asked for.
	Opens int64
	// Missed is the largest number of whole heartbeat intervals for which the reader has waited
	// for a message in vain, 0 if none was ever late.
	Missed int64
	// Reading is called with 1 when a stream opens and with -1 when it ends. It may be nil.
	Reading func(n int64)

	last changestream.Position // of the last item that was taken; Token empty: none was
}

// Position is the one behind the last change or heartbeat that was taken. Its Token is
// empty if none was.
func (r *Reader) Position() changestream.Position { return r.last }

// again is waited between attempts to read, as the service's own Java client does.
var again = retry.Backoff{Initial: 10 * time.Millisecond, Max: time.Minute, Jitter: 0.25}

// attempts bounds the attempts in a row that complete nothing.
const attempts = 10

// Read calls take with each change and each heartbeat, in their order. It returns the close
// of the stream, or nil if take has returned false: the item of that call then does not count
// as taken. An error of take ends the reading and is returned as it is. Every
// other error is of the service or wraps changestream.ErrProtocol, and quotes no key. After
// an error or nil, Read may be called again and goes on behind what was taken.
func (r *Reader) Read(ctx context.Context, take func(changestream.Item) (bool, error)) (*bigtablepb.ReadChangeStreamResponse_CloseStream, error) {
	var cookies metadata.MD
	failures := 0
	for {
		a := attempt{Reader: r, take: take}
		before := r.last
		err := a.read(ctx, &cookies)
		if err == nil || a.refused || errors.Is(err, changestream.ErrProtocol) {
			return a.closed, err
		}
		if r.last != before {
			failures = 0
		}
		failures++
		class := retry.Classify(err)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case class.Verdict != retry.VerdictTransient || failures == attempts:
			return nil, fmt.Errorf("reading a change stream of %s: %w", r.Table.Name(), retry.Bare(class.Code)) // a text may quote keys
		}
		if err := retry.Sleep(ctx, max(class.Delay, again.Delay(failures, 0.5))); err != nil {
			return nil, err
		}
	}
}

// attempt is one call of the service.
type attempt struct {
	*Reader
	take    func(changestream.Item) (bool, error)
	closed  *bigtablepb.ReadChangeStreamResponse_CloseStream
	refused bool // take has returned an error
}

// errBroken is the end of a stream without a close: it was not complete.
var errBroken = fmt.Errorf("the stream ended without a close: %w", retry.Bare(codes.Unavailable))

// read returns nil if the stream is closed, or if take has ended the reading.
func (a *attempt) read(ctx context.Context, cookies *metadata.MD) error {
	a.Opens++
	stream, err := a.Table.ReadChanges(ctx, a.Conn, a.request(), *cookies)
	if err != nil {
		return err
	}
	defer stream.Close()
	if a.Reading != nil {
		a.Reading(1)
		defer a.Reading(-1)
	}
	assembler := changestream.NewAssembler(a.MaxBytes)
	for {
		asked := time.Now()
		resp, err := stream.Recv()
		if a.Heartbeat > 0 {
			a.Missed = max(a.Missed, int64(time.Since(asked)/a.Heartbeat)-1)
		}
		if err != nil {
			*cookies = stream.Cookies()
			if errors.Is(err, io.EOF) {
				err = errBroken // a change that was under way is read again whole
			}
			return err
		}
		item, err := assembler.Add(resp)
		if err != nil {
			return err
		}
		if item.Close != nil {
			a.closed = item.Close
			return nil
		}
		if more, err := a.offer(item); err != nil || !more {
			return err
		}
	}
}

// offer has a change or a heartbeat taken.
func (a *attempt) offer(item changestream.Item) (more bool, err error) {
	var at changestream.Position
	switch {
	case item.Record != nil:
		at = item.Record.Position
	case item.Heartbeat != nil:
		at = item.Heartbeat.Position
	default:
		return true, nil // a change is under way
	}
	if more, err = a.take(item); err != nil {
		a.refused = true
		return false, err
	}
	if more {
		a.last = at
	}
	return more, nil
}

// request asks for the changes after the last item that was taken.
func (r *Reader) request() *bigtablepb.ReadChangeStreamRequest {
	req := &bigtablepb.ReadChangeStreamRequest{
		Partition:         &bigtablepb.StreamPartition{RowRange: changestream.ProtoRange(r.Opening.Range)},
		HeartbeatDuration: durationpb.New(r.Heartbeat),
	}
	tokens := r.Opening.Tokens
	if r.last.Token != "" {
		tokens = []changestream.Token{{Range: r.Opening.Range, Value: r.last.Token}}
	}
	if len(tokens) > 0 {
		req.StartFrom = &bigtablepb.ReadChangeStreamRequest_ContinuationTokens{ContinuationTokens: changestream.ProtoTokens(tokens)}
	} else {
		req.StartFrom = &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(r.Opening.Start)}
	}
	if !r.End.IsZero() {
		req.EndTime = timestamppb.New(r.End)
	}
	return req
}
