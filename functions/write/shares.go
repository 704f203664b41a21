package write

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

const (
	// perByte is what a byte of a request's body reserves of
	// limits.inFlight.maxRequestBytes (see push.Config).
	perByte = 7
	// portion is how small a part of that the deliveries of a slow table may take: 1 of so many.
	portion = 4
	// slowAfter is how long a table may take for its deliveries, of late or for those at
	// hand, before it is slow.
	slowAfter = time.Second
	// patience is how long a delivery may take if its table has more than its portion. It
	// is let in as long as the table is quick.
	patience = 3 * time.Second
)

// errCrowded refuses a delivery that would wait for a slow table.
var errCrowded = errors.New("one table is slow or answers nothing, and its events take a quarter of limits.inFlight.maxRequestBytes")

// shares keeps the deliveries that wait for a slow table, or one that does not answer, from
// taking all of limits.inFlight.maxRequestBytes, so that those of other tables get in.
type shares struct {
	most int64 // bytes of bodies for one slow table; 0: there is only one table
	now  func() time.Time

	mu     sync.Mutex
	tables map[string]*share // by name in the pipeline file
}

// share is what the deliveries of one table hold.
type share struct {
	bytes    int64
	answered time.Time     // when one was acknowledged, or the first came
	took     time.Duration // by those that were acknowledged of late
}

func newShares(p *pipeline.Pipeline, now func() time.Time) *shares {
	s := &shares{now: now, tables: map[string]*share{}}
	if len(p.Tables) > 1 {
		s.most = max(1, p.Write.Limits.InFlight.MaxRequestBytes/perByte/portion)
	}
	return s
}

// within runs do for a delivery with a body of that size. If one of its tables has
// more than its portion, do gets a context that ends soon, and is not run at all while the
// table is slow.
func (s *shares) within(ctx context.Context, rows []*mapping.Row, size int64, do func(context.Context) error) error {
	if s.most == 0 {
		return do(ctx)
	}
	tables, began := tablesOf(rows), s.now()
	crowded, slow := s.enter(tables, size, began)
	if slow {
		return errors.Join(push.ErrOverloaded, errCrowded)
	}
	if crowded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	acknowledged := false
	defer func() { s.leave(tables, size, began, acknowledged) }() // also where do panics
	err := do(ctx)
	acknowledged = err == nil
	if err != nil && crowded {
		return errors.Join(push.ErrOverloaded, err)
	}
	return err
}

// enter counts a delivery, unless one of its tables is crowded and slow. A body larger
// than the portion may go alone.
func (s *shares) enter(tables []string, size int64, now time.Time) (crowded, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range tables {
		t := s.tables[name]
		if t == nil {
			t = &share{}
			s.tables[name] = t
		}
		if t.bytes == 0 {
			t.answered, t.took = now, 0
		} else if t.bytes+size > s.most {
			crowded = true
			slow = slow || max(t.took, now.Sub(t.answered)) >= slowAfter
		}
	}
	if slow {
		return crowded, true
	}
	for _, name := range tables {
		s.tables[name].bytes += size
	}
	return crowded, false
}

func (s *shares) leave(tables []string, size int64, began time.Time, acknowledged bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range tables {
		t := s.tables[name]
		if t.bytes -= size; acknowledged {
			t.answered = now
			t.took = (3*t.took + now.Sub(began)) / 4
		}
	}
}

// tablesOf names the tables of rows, each once.
func tablesOf(rows []*mapping.Row) []string {
	var out []string
	for _, r := range rows {
		if !slices.Contains(out, r.Schema.Name) {
			out = append(out, r.Schema.Name)
		}
	}
	return out
}
