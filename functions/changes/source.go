package changes

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
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// unit is a change, or a heartbeat: a position without one.
type unit struct {
	record *changestream.Record // nil: a heartbeat
	at     changestream.Position
}

func (u unit) size() relay.Size {
	if u.record == nil {
		return relay.Size{}
	}
	return relay.Size{Rows: 1, Bytes: u.record.Bytes}
}

func (u unit) place() place {
	if u.record == nil {
		return place{Position: u.at}
	}
	return place{u.at, u.record.RowKey}
}

// source reads a partition until its stream ends or nothing comes any more.
type source struct {
	table     *btrpc.Table
	conn      grpc.ClientConnInterface
	opening   changestream.Opening // where it begins
	end       time.Time            // zero: never
	heartbeat time.Duration
	limit     int64 // bytes of a change
	idleStop  bool
	// refuse, if it is not nil, returns an error for a change at which the reading ends:
	// nothing after it may be sent before it.
	refuse func(*changestream.Record) error

	last    changestream.Position                            // of what was yielded; Token empty: nothing was
	changes int64                                            // yielded
	beats   int                                              // heartbeats in a row
	closed  *bigtablepb.ReadChangeStreamResponse_CloseStream // nil: the stream goes on
	cut     bool                                             // yield has said stop
}

// again is waited between attempts to read, as the service's own Java client does.
var again = retry.Backoff{Initial: 10 * time.Millisecond, Max: time.Minute, Jitter: 0.25}

// attempts bounds the attempts in a row that complete nothing.
const attempts = 10

// idleBeats is after how many heartbeats in a row a partition counts as idle.
const idleBeats = 2

// Read implements relay.Source. A stream that breaks off goes on behind the last thing
// that was complete.
func (s *source) Read(ctx context.Context, yield func(unit) bool) error {
	var cookies metadata.MD
	failures := 0
	for {
		before := s.last
		err := s.read(ctx, &cookies, yield)
		if err == nil || s.cut {
			return nil
		}
		var refused *poison
		if errors.Is(err, changestream.ErrProtocol) || errors.As(err, &refused) {
			return err
		}
		if s.last != before {
			failures = 0
		}
		failures++
		class := retry.Classify(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case class.Verdict != retry.VerdictTransient || failures == attempts:
			return fmt.Errorf("reading a change stream of %s: %w", s.table.Name(), retry.Bare(class.Code)) // a text may quote keys
		}
		if err := retry.Sleep(ctx, max(class.Delay, again.Delay(failures, 0.5))); err != nil {
			return err
		}
	}
}

// errBroken is the end of a stream without a close: it was not complete.
var errBroken = fmt.Errorf("the stream ended without a close: %w", retry.Bare(codes.Unavailable))

// read makes one attempt. nil: there is nothing more to be read in this visit.
func (s *source) read(ctx context.Context, cookies *metadata.MD, yield func(unit) bool) error {
	stream, err := s.table.ReadChanges(ctx, s.conn, s.request(), *cookies)
	if err != nil {
		return err
	}
	defer stream.Close()
	assembler := changestream.NewAssembler(s.limit)
	for {
		resp, err := stream.Recv()
		if err != nil {
			*cookies = stream.Cookies()
			if errors.Is(err, io.EOF) {
				err = errBroken // a change that was under way is read again whole
			}
			return err
		}
		item, err := assembler.Add(resp)
		switch {
		case err != nil:
			return err
		case item.Close != nil:
			s.closed = item.Close
			return nil
		case item.Record != nil:
			if s.refuse != nil {
				if err := s.refuse(item.Record); err != nil {
					return err
				}
			}
			s.changes, s.beats = s.changes+1, 0
			s.put(unit{record: item.Record, at: item.Record.Position}, yield)
		case item.Heartbeat != nil:
			s.beats++
			s.put(unit{at: item.Heartbeat.Position}, yield)
		}
		if s.cut || s.idle() {
			return nil
		}
	}
}

// idle reports whether the partition has nothing more to say for now.
func (s *source) idle() bool { return s.idleStop && s.beats >= idleBeats }

func (s *source) put(u unit, yield func(unit) bool) {
	if s.cut = !yield(u); !s.cut {
		s.last = u.at
	}
}

// request asks for what comes after the last thing that was complete.
func (s *source) request() *bigtablepb.ReadChangeStreamRequest {
	req := &bigtablepb.ReadChangeStreamRequest{
		Partition:         &bigtablepb.StreamPartition{RowRange: changestream.ProtoRange(s.opening.Range)},
		HeartbeatDuration: durationpb.New(s.heartbeat),
	}
	tokens := s.opening.Tokens
	if s.last.Token != "" {
		tokens = []changestream.Token{{Range: s.opening.Range, Value: s.last.Token}}
	}
	if len(tokens) > 0 {
		req.StartFrom = &bigtablepb.ReadChangeStreamRequest_ContinuationTokens{ContinuationTokens: changestream.ProtoTokens(tokens)}
	} else {
		req.StartFrom = &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(s.opening.Start)}
	}
	if !s.end.IsZero() {
		req.EndTime = timestamppb.New(s.end)
	}
	return req
}
