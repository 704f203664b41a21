// Package storetest is the specification of ledger.Store as a suite of tests, with
// an in-memory store and a faulty one for the tests of what stands on a ledger.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Run tests a store. open returns the same documents each time it is called in one
// test, through a store of its own as another process would have it, and those of
// other tests may be among them: the suite keeps to collections of its own.
func Run(t *testing.T, open func(t *testing.T) ledger.Store) {
	for name, test := range map[string]func(*testing.T, *fixture){
		"an absent document has neither version nor body":       absent,
		"a document comes back as it was put":                   roundTrip,
		"a put depends on the version":                          putVersions,
		"a delete depends on the version":                       deleteVersions,
		"a version never comes again":                           versionsAreNew,
		"a commit is applied whole or not at all":               wholeCommit,
		"a commit depends on what it checks":                    checks,
		"an expiry is kept, replaced and removed":               expiry,
		"a commit at the limits is taken, over them refused":    limits,
		"get reads several documents in order":                  several,
		"list finds a collection's own documents":               list,
		"list takes several collections, and one that is empty": listSeveral,
		"list stops at the caller's error":                      listStops,
		"list sees one moment":                                  listSnapshot,
		"the clock does not go back":                            clockOrder,
		"two stores see one another's documents":                shared,
		"a cancelled context does nothing":                      cancelled,
		"increments by many are all counted":                    increments,
		"checks prevent write skew":                             writeSkew,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, open)) })
	}
	t.Run("ledger", func(t *testing.T) { runLedger(t, open) })
}

// fixture is a store with a place of its own in it.
type fixture struct {
	ledger.Store
	open     func() ledger.Store
	root     string // of collections
	pipeline string
}

func newFixture(t *testing.T, open func(t *testing.T) ledger.Store) *fixture {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return &fixture{Store: open(t), open: func() ledger.Store { return open(t) }, root: "storetest/" + name, pipeline: name}
}

func (f *fixture) key(collection, id string) ledger.Key {
	return ledger.Key{Collection: f.root + "/" + collection, ID: id}
}

func (f *fixture) get(t *testing.T, key ledger.Key) ledger.Doc {
	t.Helper()
	docs, err := f.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if len(docs) != 1 || docs[0].Key != key || docs[0].ReadAt.IsZero() {
		t.Fatalf("get of %v: %+v, want that document with the time it was read", key, docs)
	}
	return docs[0]
}

// put commits one document that must be applied, and returns its version.
func (f *fixture) put(t *testing.T, key ledger.Key, version, text string) string {
	t.Helper()
	versions, err := f.Commit(t.Context(), []ledger.Write{{Key: key, Version: version, Body: body(text)}})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	if len(versions) != 1 || versions[0] == "" || versions[0] == version {
		t.Fatalf("commit made versions %q after %q, want one new one", versions, version)
	}
	return versions[0]
}

func (f *fixture) conflicts(t *testing.T, writes ...ledger.Write) {
	t.Helper()
	if _, err := f.Commit(t.Context(), writes); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("commit: %v, want %v", err, ledger.ErrConflict)
	}
}

func (f *fixture) holds(t *testing.T, key ledger.Key, text string) {
	t.Helper()
	if doc := f.get(t, key); string(doc.Body) != string(body(text)) {
		t.Fatalf("document %v is %q, want %q", key, doc.Body, body(text))
	}
}

func (f *fixture) isAbsent(t *testing.T, key ledger.Key) {
	t.Helper()
	if doc := f.get(t, key); doc.Version != "" || doc.Body != nil {
		t.Fatalf("document %v has version %q and %d bytes, want none", key, doc.Version, len(doc.Body))
	}
}

func body(text string) []byte {
	b, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err)
	}
	return b
}

func absent(t *testing.T, f *fixture) { f.isAbsent(t, f.key("c", "none")) }

func roundTrip(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	version := ""
	for _, text := range []string{"", "é 世界 \x00 \u2028", strings.Repeat("x", 5000)} {
		version = f.put(t, key, version, text)
		doc := f.get(t, key)
		if string(doc.Body) != string(body(text)) || doc.Version != version {
			t.Fatalf("%d bytes of version %q, want %d of %q as put", len(doc.Body), doc.Version, len(body(text)), version)
		}
		if doc.UpdatedAt.IsZero() || doc.UpdatedAt.After(doc.ReadAt) {
			t.Fatalf("updated at %v, read at %v: want a time not later", doc.UpdatedAt, doc.ReadAt)
		}
	}
}

func putVersions(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	f.conflicts(t, ledger.Write{Key: key, Version: f.put(t, f.key("c", "other"), "", "x"), Body: body("update of none")})
	f.isAbsent(t, key)
	first := f.put(t, key, "", "first")
	f.conflicts(t, ledger.Write{Key: key, Body: body("created twice")})
	second := f.put(t, key, first, "second")
	f.conflicts(t, ledger.Write{Key: key, Version: first, Body: body("stale")})
	f.holds(t, key, "second")
	f.put(t, key, second, "third")
}

func deleteVersions(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	first := f.put(t, key, "", "first")
	second := f.put(t, key, first, "second")
	f.conflicts(t, ledger.Write{Op: ledger.OpDelete, Key: key, Version: first})
	f.holds(t, key, "second")
	versions, err := f.Commit(t.Context(), []ledger.Write{{Op: ledger.OpDelete, Key: key, Version: second}})
	if err != nil || len(versions) != 1 || versions[0] != "" {
		t.Fatalf("delete: versions %q, %v, want one empty version", versions, err)
	}
	f.isAbsent(t, key)
	f.conflicts(t, ledger.Write{Op: ledger.OpDelete, Key: key, Version: second})
}

func versionsAreNew(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	seen := make(map[string]bool)
	for range 5 {
		version := f.put(t, key, "", "same")
		if seen[version] {
			t.Fatalf("version %q came again after a delete", version)
		}
		seen[version] = true
		if _, err := f.Commit(t.Context(), []ledger.Write{{Op: ledger.OpDelete, Key: key, Version: version}}); err != nil {
			t.Fatal(err)
		}
	}
}

func wholeCommit(t *testing.T, f *fixture) {
	a, b, c := f.key("a", "d"), f.key("b", "d"), f.key("b", "e")
	version := f.put(t, a, "", "a1")
	gone := f.put(t, c, "", "c1")
	f.conflicts(t,
		ledger.Write{Key: a, Version: version, Body: body("a2")},
		ledger.Write{Op: ledger.OpDelete, Key: c, Version: gone},
		ledger.Write{Key: b, Version: version, Body: body("b is not there")})
	f.holds(t, a, "a1")
	f.holds(t, c, "c1")
	f.isAbsent(t, b)
	versions, err := f.Commit(t.Context(), []ledger.Write{
		{Key: a, Version: version, Body: body("a2")},
		{Op: ledger.OpDelete, Key: c, Version: gone},
		{Key: b, Body: body("b1")},
	})
	if err != nil || len(versions) != 3 || versions[1] != "" {
		t.Fatalf("commit: versions %q, %v, want three, that of the delete empty", versions, err)
	}
	f.isAbsent(t, c)
	f.put(t, a, versions[0], "a3")
	f.put(t, b, versions[2], "b2")
}

func checks(t *testing.T, f *fixture) {
	key, guard, none := f.key("c", "d"), f.key("guards", "g"), f.key("guards", "none")
	old := f.put(t, guard, "", "g1")
	now := f.put(t, guard, old, "g2")
	put := ledger.Write{Key: key, Body: body("checked")}
	f.conflicts(t, put, ledger.Write{Op: ledger.OpCheck, Key: guard, Version: old})
	f.conflicts(t, put, ledger.Write{Op: ledger.OpCheck, Key: guard})
	f.conflicts(t, ledger.Write{Op: ledger.OpCheck, Key: none, Version: now}, put)
	f.isAbsent(t, key)
	versions, err := f.Commit(t.Context(), []ledger.Write{
		{Op: ledger.OpCheck, Key: guard, Version: now}, put, {Op: ledger.OpCheck, Key: none},
	})
	if err != nil || len(versions) != 3 || versions[0] != "" || versions[2] != "" {
		t.Fatalf("commit: versions %q, %v, want only that of the put", versions, err)
	}
	f.put(t, key, versions[1], "again")
	f.put(t, guard, now, "a check has left the version as it was")
	f.isAbsent(t, none)
}

func expiry(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	version := ""
	for _, want := range []time.Time{
		time.Date(2099, 1, 2, 3, 4, 5, 678_901_000, time.UTC), {}, time.Date(2098, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		versions, err := f.Commit(t.Context(), []ledger.Write{{Key: key, Version: version, Body: body("x"), ExpireAt: want}})
		if err != nil {
			t.Fatal(err)
		}
		version = versions[0]
		if got := f.get(t, key).ExpireAt; !got.Equal(want) {
			t.Fatalf("expires at %v, want %v", got, want)
		}
	}
}

func limits(t *testing.T, f *fixture) {
	big := body(strings.Repeat("x", ledger.MaxBodyBytes-len(body(""))))
	if _, err := f.Commit(t.Context(), []ledger.Write{{Key: f.key("big", "d"), Body: big}}); err != nil {
		t.Fatalf("a document of %d bytes: %v", len(big), err)
	}
	if got := f.get(t, f.key("big", "d")); len(got.Body) != len(big) {
		t.Fatalf("%d bytes came back, want %d", len(got.Body), len(big))
	}
	many := func(n, size int) []ledger.Write {
		writes := make([]ledger.Write, n)
		for i := range writes {
			writes[i] = ledger.Write{Key: f.key(fmt.Sprintf("many-%d", n), fmt.Sprintf("d%05d", i)), Body: body(strings.Repeat("x", size))}
		}
		return writes
	}
	full := many(ledger.MaxWrites, ledger.MaxCommitBytes/ledger.MaxWrites-300)
	if versions, err := f.Commit(t.Context(), full); err != nil || len(versions) != len(full) {
		t.Fatalf("a commit of %d writes: %d versions, %v", len(full), len(versions), err)
	}
	for name, writes := range map[string][]ledger.Write{
		"too large a document": {{Key: f.key("big", "e"), Body: append(big, ' ')}},
		"too many writes":      many(ledger.MaxWrites+1, 1),
		"too many bytes":       many(9, ledger.MaxBodyBytes-1000),
	} {
		if _, err := f.Commit(t.Context(), writes); !errors.Is(err, ledger.ErrTooLarge) {
			t.Errorf("%s: %v, want %v", name, err, ledger.ErrTooLarge)
		}
		f.isAbsent(t, writes[0].Key)
	}
}

func several(t *testing.T, f *fixture) {
	a, b, none := f.key("a", "d"), f.key("b", "d"), f.key("a", "none")
	f.put(t, a, "", "a")
	f.put(t, b, "", "b")
	docs, err := f.Get(t.Context(), b, none, a)
	if err != nil || len(docs) != 3 {
		t.Fatalf("get: %d documents, %v", len(docs), err)
	}
	for i, want := range []struct {
		key  ledger.Key
		body string
	}{{b, string(body("b"))}, {none, ""}, {a, string(body("a"))}} {
		if docs[i].Key != want.key || string(docs[i].Body) != want.body {
			t.Errorf("document %d is %v with %q, want %v with %q", i, docs[i].Key, docs[i].Body, want.key, want.body)
		}
	}
}

// listed returns what list finds: id → body, the ids with their collection's name.
func (f *fixture) listed(t *testing.T, collections ...string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for i := range collections {
		collections[i] = f.root + "/" + collections[i]
	}
	err := f.List(t.Context(), func(doc ledger.Doc) error {
		id := strings.TrimPrefix(doc.Key.Collection, f.root+"/") + "/" + doc.Key.ID
		if _, twice := found[id]; twice || doc.Version == "" || doc.ReadAt.IsZero() {
			t.Errorf("document %s came twice (%t), has version %q, was read at %v", id, twice, doc.Version, doc.ReadAt)
		}
		found[id] = string(doc.Body)
		return nil
	}, collections...)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return found
}

func list(t *testing.T, f *fixture) {
	want := make(map[string]string)
	var writes []ledger.Write
	for i := range 300 {
		id := fmt.Sprintf("d%d", i)
		writes = append(writes, ledger.Write{Key: f.key("c", id), Body: body(id)})
		want["c/"+id] = string(body(id))
	}
	if _, err := f.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	f.put(t, f.key("c2", "d"), "", "a longer name")
	f.put(t, f.key("c/d1/below", "d"), "", "below a document")
	f.put(t, f.key("c/phantom/below", "d"), "", "below none")
	if got := f.listed(t, "c"); !maps.Equal(got, want) {
		t.Errorf("%d documents %v, want the %d of the collection", len(got), slices.Sorted(maps.Keys(got)), len(want))
	}
	if got := f.listed(t, "c/phantom/below"); len(got) != 1 {
		t.Errorf("%d documents below none, want 1", len(got))
	}
}

func listSeveral(t *testing.T, f *fixture) {
	f.put(t, f.key("a", "d"), "", "a")
	f.put(t, f.key("b", "d"), "", "b")
	want := map[string]string{"a/d": string(body("a")), "b/d": string(body("b"))}
	if got := f.listed(t, "a", "empty", "b"); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func listStops(t *testing.T, f *fixture) {
	for i := range 5 {
		f.put(t, f.key("c", fmt.Sprintf("d%d", i)), "", "x")
	}
	stop, calls := errors.New("stop"), 0
	err := f.List(t.Context(), func(ledger.Doc) error {
		calls++
		return stop
	}, f.root+"/c")
	if err != stop || calls != 1 {
		t.Errorf("%v after %d calls, want the caller's error after one", err, calls)
	}
}

func clockOrder(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	last, version := f.get(t, key).ReadAt, ""
	for i := range 20 {
		version = f.put(t, key, version, fmt.Sprint(i))
		doc := f.get(t, key)
		if doc.UpdatedAt.Before(last) || doc.ReadAt.Before(doc.UpdatedAt) {
			t.Fatalf("read at %v, then updated at %v and read at %v", last, doc.UpdatedAt, doc.ReadAt)
		}
		last = doc.ReadAt
	}
}

func shared(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	version := f.put(t, key, "", "one")
	other := &fixture{Store: f.open(), root: f.root}
	other.holds(t, key, "one")
	other.put(t, key, version, "two")
	f.conflicts(t, ledger.Write{Key: key, Version: version, Body: body("stale")})
	f.holds(t, key, "two")
}

func cancelled(t *testing.T, f *fixture) {
	key := f.key("c", "d")
	f.put(t, f.key("c", "other"), "", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Commit(ctx, []ledger.Write{{Key: key, Body: body("x")}}); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v, want %v", err, context.Canceled)
	}
	if _, err := f.Get(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v, want %v", err, context.Canceled)
	}
	err := f.List(ctx, func(ledger.Doc) error { return nil }, f.root+"/c")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v, want %v", err, context.Canceled)
	}
	f.isAbsent(t, key)
}
