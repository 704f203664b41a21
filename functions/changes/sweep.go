package changes

import (
	"context"
	"errors"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// sweepBeats is after how many heartbeats a visit without a lease ends if the low
	// watermark has not passed its begin: the service may move it only once a minute.
	sweepBeats = 3
	// sweepFactor times maxStreams idle partitions go to one invocation, which reads
	// maxStreams of them at a time: about 20 s of work.
	sweepFactor = 16
	// leastKept is the shortest time for which a table can keep its changes.
	leastKept = 24 * time.Hour
)

// cadence is how often the idle partitions of a stream are visited. A visit that finds no
// change writes nothing, so its time is not kept: it is computed from the last one that was.
type cadence struct {
	most time.Duration // the longest pause
	// fresh is the age from which on a position is written anew by a visit without a change.
	// It is at least the longest pause and the longest time between two lists, so that no
	// position gets older than twice as much.
	fresh time.Duration
}

// cadence returns that of a table which keeps its changes for a time; 0: unknown.
func (s *stream) cadence(keeps time.Duration) cadence {
	if keeps == 0 {
		keeps = leastKept
	}
	return cadence{most: min(s.change.MaxIdle, keeps/20), fresh: keeps / 20}
}

// soon is the pause after a visit that has found changes and caught up. It ends before the
// next tick, whenever the visit ended.
const soon = Tick / 2

// next is the pause after one without a change.
func (c cadence) next(pause time.Duration) time.Duration {
	return min(c.most, max(Tick, 2*pause))
}

// last returns the last planned visit of an idle partition up to a time, zero if there is
// none, and the pause after it.
func (c cadence) last(p *ledger.Partition, until time.Time) (at time.Time, pause time.Duration) {
	pause = min(p.Idle, c.most)
	for t := p.VisitedAt.Add(pause); !t.After(until); t = t.Add(pause) {
		if pause == c.most { // from here on all are alike
			t = t.Add(until.Sub(t).Truncate(pause))
		}
		at, pause = t, c.next(pause)
	}
	return at, pause
}

// due reports whether a visit of an idle partition is planned after the tick before, and
// not after this one. Ticks do not come exactly in time, so half a tick is added to both.
func (c cadence) due(p *ledger.Partition, before, now time.Time) bool {
	at, _ := c.last(p, now.Add(Tick/2))
	return at.After(before.Add(Tick / 2))
}

// listPer times the number of partitions is how often all of them are listed: 10,000 each
// hour, and 166 at each tick.
const listPer = time.Hour / 10_000

// list is after what time all partitions are to be listed again. It is 0 if one of them has
// never been leased, or if so many are watched that to read these would cost more.
func (c cadence) list(partitions []*ledger.Partition) time.Duration {
	watched := 0
	for _, p := range partitions {
		switch {
		case p.Watched:
			watched++
		case p.Idle == 0:
			return 0
		}
	}
	if 2*watched >= len(partitions) {
		return 0
	}
	return min(time.Duration(len(partitions))*listPer, c.fresh)
}

// sweeps reports whether a partition is first read without its lease: it is likely to have
// no changes, and there is a place where its last holder has given it back.
func (s *stream) sweeps(p *ledger.Partition) bool {
	return s.change.IdleStop && p.Idle > 0 && len(p.Tokens) > 0 && !p.Abandoned()
}

// quiet reads a partition without its lease until it has caught up, and reports whether it
// has, without a change. Nothing is sent meanwhile, and the position stays, unless it has to
// be fresh: a process that dies here loses nothing. If something else than a heartbeat comes, or an
// error, the partition is to be read again under its lease.
func (f *function) quiet(ctx context.Context, s *stream, p *ledger.Partition, v *Visit) (bool, error) {
	keeps, err := f.retention(ctx, s)
	if err != nil || keeps > 0 && changestream.Expired(p.LowWatermark, p.Now(), keeps) {
		return false, nil
	}
	at, err := f.sweep(ctx, s, p, v)
	if err != nil || at == nil {
		return false, nil
	}
	v.LowWatermark = at.LowWatermark
	c := s.cadence(keeps)
	_, pause := c.last(p, p.Now().Add(Tick/2))
	unwatch := p.Watched && pause == c.most
	if !unwatch && p.Now().Sub(p.LowWatermark) < c.fresh {
		return true, nil
	}
	err = f.cfg.Ledger.Refresh(ctx, p, *at, pause, unwatch)
	if errors.Is(err, ledger.ErrLost) {
		err = nil // somebody reads it
	}
	return true, err
}

// sweep returns the position up to which a partition has no changes, nil if it has some or
// is closed.
func (f *function) sweep(ctx context.Context, s *stream, p *ledger.Partition, v *Visit) (*changestream.Position, error) {
	began := p.Now()
	r := changeread.Reader{Table: s.table, Conn: f.cfg.Conn, Opening: p.Opening, End: s.change.End, Heartbeat: f.cfg.Heartbeat, MaxBytes: s.change.MaxRecordBytes,
		Reading: f.cfg.reading(ctx, s.change)}
	var at *changestream.Position
	closed, err := r.Read(ctx, func(item changestream.Item) (bool, error) {
		v.Seen.note(item)
		if item.Heartbeat == nil {
			at = nil
			return false, nil
		}
		at = &item.Heartbeat.Position
		return at.LowWatermark.Before(began) && v.Heartbeats < sweepBeats, nil
	})
	v.Opens += r.Opens
	v.Missed = max(v.Missed, r.Missed)
	if closed != nil {
		at = nil
	}
	return at, err
}
