package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// together runs f n times at once, each with a store of its own, and fails the
// test with the errors.
func (f *fixture) together(t *testing.T, n int, run func(i int, store ledger.Store) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		store := f.open()
		all.Go(func() { errs[i] = run(i, store) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// settle repeats attempt until it neither conflicts nor is in doubt.
func settle(attempt func() error) error {
	for {
		err := attempt()
		if !errors.Is(err, ledger.ErrConflict) && !errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
	}
}

func increments(t *testing.T, f *fixture) {
	const workers, each = 6, 8
	key := f.key("c", "counter")
	f.put(t, key, "", "")
	// Each increment carries who made it, so that one in doubt is known again.
	type counter struct {
		N    int
		Made map[string]bool
	}
	f.together(t, workers, func(worker int, store ledger.Store) error {
		for i := range each {
			mark := fmt.Sprintf("%d/%d", worker, i)
			if err := settle(func() error {
				docs, err := store.Get(t.Context(), key)
				if err != nil {
					return err
				}
				c := counter{Made: make(map[string]bool)}
				if err := json.Unmarshal(docs[0].Body, &c); err != nil {
					return err
				}
				if c.Made[mark] {
					return nil
				}
				c.N++
				c.Made[mark] = true
				b, err := json.Marshal(c)
				if err != nil {
					return err
				}
				_, err = store.Commit(t.Context(), []ledger.Write{{Key: key, Version: docs[0].Version, Body: b}})
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	var c counter
	if err := json.Unmarshal(f.get(t, key).Body, &c); err != nil {
		t.Fatal(err)
	}
	if c.N != workers*each || len(c.Made) != c.N {
		t.Errorf("counted %d of %d increments, %d of them marked", c.N, workers*each, len(c.Made))
	}
}

// writeSkew: of two documents one must stay; two processes each delete the one
// after checking the other.
func writeSkew(t *testing.T, f *fixture) {
	for round := range 3 {
		keys := []ledger.Key{f.key(fmt.Sprintf("r%d", round), "a"), f.key(fmt.Sprintf("r%d", round), "b")}
		versions := []string{f.put(t, keys[0], "", "a"), f.put(t, keys[1], "", "b")}
		f.together(t, 2, func(i int, store ledger.Store) error {
			err := settle(func() error {
				docs, err := store.Get(t.Context(), keys...)
				if err != nil {
					return err
				}
				if docs[0].Version == "" || docs[1].Version == "" {
					return nil
				}
				_, err = store.Commit(t.Context(), []ledger.Write{
					{Op: ledger.OpDelete, Key: keys[i], Version: versions[i]},
					{Op: ledger.OpCheck, Key: keys[1-i], Version: versions[1-i]},
				})
				return err
			})
			return err
		})
		docs, err := f.Get(t.Context(), keys...)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := docs[0].Version != "", docs[1].Version != ""; a == b {
			t.Fatalf("round %d: a is there: %t, b: %t, want one of them", round, a, b)
		}
	}
}

// listSnapshot: a document moves from one collection to another and back, and a
// list of both sees it once.
func listSnapshot(t *testing.T, f *fixture) {
	keys := []ledger.Key{f.key("a", "d"), f.key("b", "d")}
	f.put(t, keys[0], "", "x")
	for i := range 20 { // what makes a list take time
		f.put(t, f.key("a", fmt.Sprintf("e%d", i)), "", "x")
	}
	done := make(chan struct{})
	f.together(t, 2, func(i int, store ledger.Store) error {
		if i == 0 {
			defer close(done)
			return moveToAndFro(t, store, keys)
		}
		for {
			select {
			case <-done:
				return nil
			default:
			}
			seen := 0
			err := store.List(t.Context(), func(doc ledger.Doc) error {
				if doc.Key == keys[0] || doc.Key == keys[1] {
					seen++
				}
				return nil
			}, keys[0].Collection, keys[1].Collection)
			if err == nil && seen != 1 {
				err = fmt.Errorf("a list saw the moving document %d times, want once", seen)
			}
			if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
				return err
			}
		}
	})
}

func moveToAndFro(t *testing.T, store ledger.Store, keys []ledger.Key) error {
	for i := range 30 {
		from, to := keys[i%2], keys[1-i%2]
		err := settle(func() error {
			docs, err := store.Get(t.Context(), from)
			if err != nil || docs[0].Version == "" { // moved already
				return err
			}
			_, err = store.Commit(t.Context(), []ledger.Write{
				{Op: ledger.OpDelete, Key: from, Version: docs[0].Version},
				{Key: to, Body: body("x")},
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
