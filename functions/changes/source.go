package changes

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
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
	changeread.Reader
	idleStop bool
	// refuse, if it is not nil, returns an error for a change at which the reading ends:
	// nothing after it may be sent before it.
	refuse func(*changestream.Record) error

	seen    *Seen                                            // counts all that comes
	changes int64                                            // yielded
	beats   int                                              // heartbeats in a row
	closed  *bigtablepb.ReadChangeStreamResponse_CloseStream // nil: the stream goes on
}

// idleBeats is after how many heartbeats in a row a partition counts as idle.
const idleBeats = 2

// Read implements relay.Source.
func (s *source) Read(ctx context.Context, yield func(unit) bool) (err error) {
	s.closed, err = s.Reader.Read(ctx, func(item changestream.Item) (more bool, err error) {
		s.seen.note(item)
		if item.Heartbeat != nil {
			s.beats++
			return yield(unit{at: item.Heartbeat.Position}) && !s.idle(), nil
		}
		if s.refuse != nil {
			if err := s.refuse(item.Record); err != nil {
				return false, err
			}
		}
		s.changes, s.beats = s.changes+1, 0
		return yield(unit{record: item.Record, at: item.Record.Position}), nil
	})
	return err
}

// idle reports whether the partition has nothing more to say for now.
func (s *source) idle() bool { return s.idleStop && s.beats >= idleBeats }
