package changes

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
)

// unit is a change, or a heartbeat: a position without one.
type unit struct {
	record *changestream.Record // nil: a heartbeat
	at     changestream.Position
	made   *made // nil: the record is the whole change, and made when it is sent
}

// made is what a change became while it was read.
type made struct {
	outputs  []mapping.Output
	filtered int // entries
	err      error
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
	// make, if it is not nil, makes the records of a change. An error ends the reading at that
	// change: nothing after it may be sent before it.
	make func(*changestream.Record) (*made, error)

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
		u := unit{record: item.Record, at: item.Record.Position}
		if s.make != nil {
			var err error
			if u.made, err = s.make(item.Record); err != nil {
				return false, err
			}
		}
		s.changes, s.beats = s.changes+1, 0
		return yield(u), nil
	})
	return err
}

// idle reports whether the partition has nothing more to say for now.
func (s *source) idle() bool { return s.idleStop && s.beats >= idleBeats }
