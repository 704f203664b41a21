package writer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// faulty is a service that applies what it is asked, and fails in every way it can:
// before it applies, after, half-way, for one entry, without an answer.
type faulty struct {
	service
	mu     sync.Mutex
	random *rand.Rand
	share  float64 // of calls that fail
}

func (f *faulty) roll() (float64, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64(), f.random.IntN(7)
}

func bad(e *bigtablepb.MutateRowsRequest_Entry) bool { return e.RowKey[0] == 'x' }

func (f *faulty) answer(_ int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
	time.Sleep(time.Millisecond)
	for _, e := range r.Entries {
		if bad(e) {
			return status.Error(codes.InvalidArgument, "one of them")
		}
	}
	p, kind := f.roll()
	if p >= f.share {
		return f.respond(r, nil, out)
	}
	switch kind {
	case 0: // nothing happened
		return status.Error(codes.Unavailable, "before")
	case 1:
		return status.Error(codes.ResourceExhausted, "before")
	case 2: // everything happened
		for _, e := range r.Entries {
			f.apply(string(e.RowKey))
		}
		return status.Error(codes.Unavailable, "after")
	case 3: // a part is answered, a part only happened
		half := len(r.Entries) / 2
		if err := f.respond(&bigtablepb.MutateRowsRequest{Entries: r.Entries[:half]}, nil, out); err != nil {
			return err
		}
		for _, e := range r.Entries[half:] {
			f.apply(string(e.RowKey))
		}
		return status.Error(codes.Internal, "Received Rst Stream")
	case 4: // some are omitted
		return f.respond(&bigtablepb.MutateRowsRequest{Entries: r.Entries[:len(r.Entries)/2]}, nil, out)
	case 5:
		<-out.Context().Done()
		return out.Context().Err()
	}
	resp := &bigtablepb.MutateRowsResponse{}
	for i, e := range r.Entries {
		entry := &bigtablepb.MutateRowsResponse_Entry{Index: int64(i)}
		if p, kind := f.roll(); p < 0.5 {
			entry.Status = code([]codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded}[kind%3])
		} else {
			f.apply(string(e.RowKey))
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return out.Send(resp)
}

// Whatever fails: what is reported as applied is applied, what may not be repeated was
// applied once at most, verdicts fall only on the guilty, and nothing stays behind.
//
// covers: SNK-35, FAIL-20
func TestPromisesHoldUnderFaults(t *testing.T) {
	seeds := 10
	if os.Getenv("BTF_SOAK") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { promisesHold(t, uint64(seed)) })
		})
	}
}

func promisesHold(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	limits := pipeline.Limits{
		Batch:                 pipeline.Batch{MaxEntries: 1 + random.IntN(40), MaxBytes: 1 << 20, Concurrency: 1 + random.IntN(4)},
		InFlight:              pipeline.InFlight{MaxEntries: 1 + random.IntN(100), MaxBytes: 1 << 20},
		ConsecutiveRejections: 0, InstanceClients: 1 + random.IntN(3), TableIdle: time.Minute,
	}
	f := &faulty{random: random, share: random.Float64() / 2}
	f.stream = f.answer
	w := start(t, &f.service, func(c *Config) { c.Limits = limits })
	var wg sync.WaitGroup
	for caller := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(caller+1)))
		wg.Go(func() {
			for event := range 4 {
				f.event(t, w, random, fmt.Sprintf("%d-%d", caller, event))
			}
		})
	}
	wg.Wait()
	if err := w.Close(within(t, 10*time.Minute)); err != nil {
		t.Error(err)
	}
	for key, n := range f.applied {
		if key[0] == 'a' && n > 1 {
			t.Errorf("%s, which may not be repeated, was applied %d times", key, n)
		}
	}
}

// event applies one event's entries; every fourth caller leaves early.
func (f *faulty) event(t *testing.T, w *Writer, random *rand.Rand, name string) {
	var entries []Entry
	for i := range 1 + random.IntN(30) {
		ref := pipeline.TableRef{Project: "p", Instance: fmt.Sprint(random.IntN(3)), Table: fmt.Sprint(random.IntN(2))}
		var e Entry
		switch random.IntN(12) {
		case 0:
			e = add(fmt.Sprintf("a-%s-%d", name, i), "")
		case 1:
			e = add(fmt.Sprintf("t-%s-%d", name, i), "0123456789abcdef")
		case 2:
			e = set(fmt.Sprintf("x-%s-%d", name, i))
		case 3:
			e = marked(add(fmt.Sprintf("u-%s-%d", name, i), ""))
		default:
			e = set(fmt.Sprintf("s-%s-%d", name, i%20)) // some rows twice
		}
		e.Table = ref
		entries = append(entries, e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(120))*time.Second)
	defer cancel()
	if random.IntN(4) == 0 {
		time.AfterFunc(time.Duration(random.IntN(50))*time.Millisecond, cancel)
	}
	for i, err := range w.Apply(ctx, entries) {
		key := string(entries[i].Row.RowKey)
		switch {
		case retry.IsRejected(err) && key[0] != 'x':
			t.Errorf("%s rejected: %v", key, err)
		case err == nil && (key[0] == 'x' || f.appliedTimes(key) == 0):
			t.Errorf("%s is reported as applied", key)
		}
	}
}
