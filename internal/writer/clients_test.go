package writer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// connections counts what is open.
type connections struct {
	mu         sync.Mutex
	dial       func(context.Context, string, string) (Conn, error)
	open, most int
	dialed     []string
}

type counted struct {
	Conn
	c *connections
}

func (c *connections) Dial(ctx context.Context, project, name string) (Conn, error) {
	conn, err := c.dial(ctx, project, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.most = max(c.most, c.open)
	c.dialed = append(c.dialed, name)
	return counted{conn, c}, err
}

func (c counted) Close() error {
	c.c.mu.Lock()
	c.c.open--
	c.c.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func at(instance, table, key string) Entry {
	return setIn(pipeline.TableRef{Project: "p", Instance: instance, Table: table}, key)
}

// issue-row: 37
// covers: SNK-17, SNK-18
func TestTablesOfAnInstanceShareOneClientAcrossFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(_ context.Context, n int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n%3 != 0 {
				return nil, status.Error(codes.Unavailable, "down")
			}
			return nil, nil
		}}
		w := start(t, s)
		for i := range 10 {
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at("i", "a", fmt.Sprint(i)), at("i", "b", fmt.Sprint(i))}))
		}
		if n := s.count("Dial"); n != 1 || w.Stats().Tables != 2 || w.Stats().Clients != 1 {
			t.Errorf("%d connections, %+v", n, w.Stats())
		}
	})
}

// covers: SNK-20, SNK-21
func TestTheClientUsedLeastRecentlyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(100 * time.Millisecond)
			return nil, nil
		}}
		c := &connections{dial: s.serve(t)}
		cfg := config(c.Dial)
		cfg.Limits.InstanceClients = 3
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 { // the first instance is used again and again
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at("hot", "t", "k"), at(fmt.Sprint("cold-", i), "t", "k")}))
		}
		if c.most > 3 {
			t.Errorf("%d connections at once", c.most)
		}
		hot := 0
		for _, name := range c.dialed {
			if name == "hot" {
				hot++
			}
		}
		if hot != 1 {
			t.Errorf("the busy client was made %d times", hot)
		}
		var wg sync.WaitGroup
		for i := range 40 { // all at once: they wait for each other's clients
			wg.Go(func() {
				wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at(fmt.Sprint("i-", i%8), "t", fmt.Sprint(i)), at(fmt.Sprint("i-", (i+3)%8), "t", fmt.Sprint(i))}))
			})
		}
		wg.Wait()
		if c.most > 3 {
			t.Errorf("%d connections at once", c.most)
		}
		if err := w.Close(within(t, time.Minute)); err != nil || c.count() != 0 {
			t.Errorf("%d connections left: %v", c.count(), err)
		}
	})
}

// covers: SNK-19
func TestIdleTablesAndClientsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		c := &connections{dial: s.serve(t)}
		w := start(t, s, func(cfg *Config) { cfg.Dial = c.Dial })
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at("i", "a", "1"), at("j", "b", "1")}))
		for range 59 {
			time.Sleep(time.Minute)
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at("i", "a", "1")}))
		}
		if n := w.Stats().Tables; n != 2 {
			t.Fatalf("%d tables before the hour is over", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := w.Stats(); st.Tables != 1 || st.Clients != 1 || c.count() != 1 {
			t.Errorf("%+v, %d connections", st, c.count())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if st := w.Stats(); st.Tables != 0 || st.Clients != 0 || c.count() != 0 {
			t.Errorf("%+v, %d connections", st, c.count())
		}
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{at("i", "a", "2")})) // made again
	})
}

// issue-row: 30, 31, 32
// covers: SNK-18
func TestNothingIsAskedBeforeTheFirstEntry(t *testing.T) {
	s := &service{}
	w := start(t, s)
	if s.count("Dial") != 0 {
		t.Error("connected by New")
	}
	wantApplied(t, w.Apply(within(t, time.Minute), sets(1)))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, "start")
	if len(s.calls) != 2 || s.calls["Dial"] != 1 || s.calls["MutateRows"] != 1 { // no priming, no metrics, no probe of another path
		t.Errorf("%v", s.calls)
	}
}

func TestAConnectionThatCannotBeMadeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		dial, n := s.serve(t), 0
		w := start(t, s, func(c *Config) {
			c.Dial = func(ctx context.Context, p, i string) (Conn, error) {
				if n++; n < 3 {
					return nil, status.Error(codes.Unavailable, "no token yet")
				}
				return dial(ctx, p, i)
			}
		})
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("a"), add("b", "")})) // nothing was sent: both may go again
	})
}
