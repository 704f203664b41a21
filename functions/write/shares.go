package write

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

const (
	// perByte is what a byte of a request's body reserves of
	// limits.inFlight.maxRequestBytes (see push.Config).
	perByte = 7
	// patience is how long a table whose deliveries take more than half of that may
	// answer none of them: long for a table that answers, short for the others.
	patience = 5 * time.Second
)

// errCrowded refuses a delivery that would wait for a silent table.
var errCrowded = errors.New("one table answers nothing, and its events take half of limits.inFlight.maxRequestBytes")

// shares keeps the deliveries that wait for a table which does not answer from taking
// all of limits.inFlight.maxRequestBytes, so that those of other tables get in.
type shares struct {
	most int64 // bytes of bodies for one table; 0: there is only one table
	now  func() time.Time

	mu     sync.Mutex
	tables map[string]*share // by name in the pipeline file
}

// share is what the deliveries of one table hold.
type share struct {
	bytes    int64
	answered time.Time // when one was acknowledged, or the first came
}

func newShares(p *pipeline.Pipeline, now func() time.Time) *shares {
	s := &shares{now: now, tables: map[string]*share{}}
	if len(p.Tables) > 1 {
		s.most = max(1, p.Write.Limits.InFlight.MaxRequestBytes/perByte/2)
	}
	return s
}

// within runs do for a delivery with a body of that size. Where one of its tables has
// more than its share, do gets a context that ends soon, and is not run at all while the
// table answers nothing.
func (s *shares) within(ctx context.Context, rows []*mapping.Row, size int64, do func(context.Context) error) error {
	if s.most == 0 {
		return do(ctx)
	}
	tables := tablesOf(rows)
	crowded, silent := s.enter(tables, size)
	if silent {
		return errors.Join(push.ErrOverloaded, errCrowded)
	}
	if crowded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	acknowledged := false
	defer func() { s.leave(tables, size, acknowledged) }() // also where do panics
	err := do(ctx)
	acknowledged = err == nil
	if err != nil && crowded {
		return errors.Join(push.ErrOverloaded, err)
	}
	return err
}

// enter counts a delivery, unless one of its tables is crowded and silent. A body larger
// than the share may go alone.
func (s *shares) enter(tables []string, size int64) (crowded, silent bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range tables {
		t := s.tables[name]
		if t == nil {
			t = &share{}
			s.tables[name] = t
		}
		if t.bytes == 0 {
			t.answered = now
		} else if t.bytes+size > s.most {
			crowded = true
			silent = silent || now.Sub(t.answered) >= patience
		}
	}
	if silent {
		return crowded, true
	}
	for _, name := range tables {
		s.tables[name].bytes += size
	}
	return crowded, false
}

func (s *shares) leave(tables []string, size int64, acknowledged bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range tables {
		t := s.tables[name]
		if t.bytes -= size; acknowledged {
			t.answered = now
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
