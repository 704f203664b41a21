package emulator

import (
	"context"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// changeReader reads the changes of one partition for one call. It holds at
// most one chunk of each part of the log that it reads, however slow its
// client is.
type changeReader struct {
	keyRange
	place
	e          *Emulator
	t          *table
	part       *logPart // of the tablet that has the partition's keys; nil: there is none
	generation uint64
	binding    []byte // of the partition's tokens
	ends       bool
	endTime    int64 // microseconds, inclusive
	heartbeat  time.Duration
	due        bool // a heartbeat is due
	out        streamSender
}

// turn is one look of a reader at the log: the changes that are next, and the
// state of the stream behind them.
type turn struct {
	settings  StreamSettings
	view      logView
	rest      bool            // there are more changes than the view has
	ended     bool            // the tablet has ended
	now       int64           // nothing will be committed at an earlier time
	watermark int64           // once the view has been served, unless there are more changes
	wake      <-chan struct{} // closed when there is something new
	durable   int64           // the journal position of all that was seen
}

func (r *changeReader) run(ctx context.Context) error {
	beat := time.NewTimer(r.heartbeat)
	defer beat.Stop()
	for {
		moved := r.e.clock.waiter()
		turn, err := r.look()
		if err != nil {
			return err
		}
		if err := r.e.durable(turn.durable); err != nil {
			return err
		}
		r.out.patience = turn.settings.SlowReader
		done, err := r.serve(&turn, beat)
		if done || err != nil {
			return err
		}
		if turn.rest {
			continue
		}
		if turn.ended {
			return r.closeMoved()
		}
		if r.ends && turn.watermark > r.endTime {
			return r.closeDone()
		}
		if err := r.wait(ctx, &turn, moved, beat); err != nil {
			return err
		}
	}
}

// look takes the next changes, and says whether there are more.
func (r *changeReader) look() (turn, error) {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkStream(r.generation); err != nil {
		return turn{}, err
	}
	s := t.settings.orDefaults()
	if r.floor < t.droppedIn(r.keyRange) {
		return turn{}, status.Error(s.Expired, "The stream has fallen behind the change stream's retention period")
	}
	if r.part == nil { // misaligned
		return turn{settings: s, ended: true, durable: r.e.appended()}, nil
	}
	upTo := t.log.next
	if r.part.ended {
		upTo = r.part.until
	}
	found := turn{settings: s, view: t.view(r.keyRange, r.floor, upTo, false), ended: r.part.ended, durable: r.e.appended()}
	found.rest = found.view.upTo < upTo
	found.now = max(r.e.clock.micros(), t.log.last)
	found.watermark = s.lowWatermark(found.now)
	if !found.rest && !found.ended {
		found.wake = r.part.waiter()
	}
	return found, nil
}

// serve sends the changes of a turn, and heartbeats that come due meanwhile.
// done says that the stream is over.
func (r *changeReader) serve(turn *turn, beat *time.Timer) (done bool, err error) {
	turn.view.each(func(c *change) bool {
		if r.served(c.key, c.position) {
			return true
		}
		if r.ends && c.commit > r.endTime {
			done, err = true, r.closeDone()
			return false
		}
		select {
		case <-beat.C:
			r.due = true
			err = r.beat(turn.settings.lowWatermark(r.at), beat)
		default:
		}
		if err == nil {
			r.advance(c.position+1, c.commit)
			err = r.sendChange(c, turn.settings)
		}
		return err == nil
	})
	if done || err != nil {
		return done, err
	}
	r.advance(turn.view.upTo, r.at)
	if !turn.rest && !turn.ended {
		// Whatever comes later is committed at this time at the earliest.
		r.advance(r.floor, turn.now)
		return false, r.beat(turn.watermark, beat)
	}
	return false, nil
}

// wait waits for something new, or until a heartbeat is due.
func (r *changeReader) wait(ctx context.Context, turn *turn, moved <-chan struct{}, beat *time.Timer) error {
	var end <-chan time.Time
	if r.ends {
		timer := time.NewTimer(max(time.Millisecond, time.Duration(r.endTime+1-turn.watermark)*time.Microsecond))
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-turn.wake:
	case <-moved:
	case <-end:
	case <-beat.C:
		r.due = true
	}
	return nil
}

// beat sends a heartbeat if one is due.
func (r *changeReader) beat(watermark int64, timer *time.Timer) error {
	if !r.due {
		return nil
	}
	r.due = false
	timer.Reset(r.heartbeat)
	return r.out.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_Heartbeat_{
		Heartbeat: &bigtablepb.ReadChangeStreamResponse_Heartbeat{
			ContinuationToken:     &bigtablepb.StreamContinuationToken{Partition: partitionProto(r.keyRange), Token: encodeToken(r.binding, &r.place)},
			EstimatedLowWatermark: microsProto(watermark),
		}}})
}

func microsProto(micros int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMicro(micros)) }

// sendChange sends a change as one record, in as many messages as it takes.
func (r *changeReader) sendChange(c *change, s StreamSettings) error {
	entry := &bigtablepb.MutateRowsRequest_Entry{}
	if err := proto.Unmarshal(c.encoded, entry); err != nil {
		return status.Errorf(codes.Internal, "the change log holds a damaged message: %v", err)
	}
	p := recordPacker{limit: s.ChunkBytes, send: func(m *bigtablepb.ReadChangeStreamResponse_DataChange) error {
		if m.Done {
			m.Token, m.EstimatedLowWatermark = encodeToken(r.binding, &r.place), microsProto(s.lowWatermark(c.commit))
		}
		return r.out.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{DataChange: m}})
	}}
	return p.record(c, entry.Mutations)
}

// closeDone ends a stream whose end time has passed.
func (r *changeReader) closeDone() error {
	return r.sendClose(&bigtablepb.ReadChangeStreamResponse_CloseStream{Status: &statuspb.Status{}})
}

// closeMoved ends a stream whose partition is not the keys of one tablet, or no
// longer. The close has a token for each part of the partition that lies in one
// of the tablets there are now.
func (r *changeReader) closeMoved() error {
	tokens, opened, settings, durable := r.successors()
	if err := r.e.durable(durable); err != nil {
		return err
	}
	c := &bigtablepb.ReadChangeStreamResponse_CloseStream{
		Status:             &statuspb.Status{Code: int32(codes.OutOfRange), Message: "Partition boundaries are misaligned."},
		ContinuationTokens: tokens, NewPartitions: opened,
	}
	exact := true
	for i, token := range tokens {
		exact = exact && proto.Equal(token.Partition, opened[i])
		if settings.WideTokens {
			token.Partition = opened[i]
		}
	}
	if exact && settings.OmitNewPartitions {
		c.NewPartitions = nil
	}
	return r.sendClose(c)
}

func (r *changeReader) successors() (tokens []*bigtablepb.StreamContinuationToken, opened []*bigtablepb.StreamPartition, s StreamSettings, durable int64) {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.tabletAt(r.start)
	for j := range t.tabletsIn(r.keyRange) {
		whole := t.tabletRange(i + j)
		part, _ := r.within(whole) // not empty: the tablet holds keys of the partition
		p := r.in(part)
		tokens = append(tokens, &bigtablepb.StreamContinuationToken{Partition: partitionProto(part), Token: encodeToken(tokenBinding(t, part), &p)})
		opened = append(opened, partitionProto(whole))
	}
	return tokens, opened, t.settings, r.e.appended()
}

func (r *changeReader) sendClose(c *bigtablepb.ReadChangeStreamResponse_CloseStream) error {
	return r.out.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_CloseStream_{CloseStream: c}})
}
