package writer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tardy is a service that now and then does not answer, and applies what it was asked at
// any time up to the call's deadline, also when the caller has long given it up.
type tardy struct {
	*hanging
	random *rand.Rand
}

func (s *tardy) answer(_ int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
	s.mu.Lock()
	kind, share := s.random.IntN(10), s.random.Float64()
	s.mu.Unlock()
	deadline, _ := out.Context().Deadline()
	switch kind {
	case 0: // it hangs, and nothing comes of it
		time.Sleep(time.Until(deadline))
	case 1, 2, 3: // it hangs, and is applied late
		time.Sleep(time.Duration(share * float64(time.Until(deadline))))
		s.write(r.Entries)
		time.Sleep(time.Until(deadline))
	case 4:
		return status.Error(codes.Unavailable, "before")
	default:
		s.write(r.Entries)
		return s.respond(r, nil, out)
	}
	return status.Error(codes.DeadlineExceeded, "too late")
}

// One caller that awaits each Apply call finds at the end what the last of its entries
// have written, whatever is applied late.
func TestLateApplicationsKeepTheOrderOfOneCaller(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 2))
				s := &tardy{newHanging(0, 0), rand.New(rand.NewPCG(seed, 1))}
				s.stream = s.answer
				w := start(t, &s.service)
				want := map[string]string{}
				for i := range 25 {
					var entries []Entry
					for j := range 1 + random.IntN(3) {
						key := fmt.Sprint("row-", random.IntN(2))
						if random.IntN(4) == 0 {
							entries = append(entries, deleteRow(key))
							maps.DeleteFunc(want, func(cell, _ string) bool { return cell[:len(key)] == key })
							continue
						}
						micros, value := 1000*int64(1+random.IntN(2)), fmt.Sprint(i, "-", j)
						entries = append(entries, setValue(key, micros, value))
						want[fmt.Sprintf("%s/cf:q@%d", key, micros)] = value
					}
					// Long enough for every entry to hang several times.
					wantApplied(t, w.Apply(within(t, time.Hour), entries))
				}
				time.Sleep(2 * time.Minute) // all that was sent is applied
				s.mu.Lock()
				defer s.mu.Unlock()
				if !maps.Equal(s.cells, want) {
					t.Errorf("the table has %v, want %v", s.cells, want)
				}
			})
		})
	}
}
