package storetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Memory is a store in this process, for tests that want no other: its clock is
// time.Now, which a testing/synctest bubble moves.
type Memory struct {
	mu       sync.Mutex
	docs     map[ledger.Key]ledger.Doc
	sequence int
	writes   map[ledger.Key]int
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{docs: make(map[ledger.Key]ledger.Doc), writes: make(map[ledger.Key]int)}
}

// Get implements ledger.Store.
func (m *Memory) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	docs := make([]ledger.Doc, len(keys))
	for i, key := range keys {
		docs[i] = m.read(key, clock())
	}
	return docs, ctx.Err()
}

func (m *Memory) read(key ledger.Key, now time.Time) ledger.Doc {
	doc := m.docs[key]
	doc.Key, doc.ReadAt, doc.Body = key, now, bytes.Clone(doc.Body)
	return doc
}

// Commit implements ledger.Store.
func (m *Memory) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	if err := ledger.CheckLimits(writes); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if m.docs[w.Key].Version != w.Version {
			return nil, ledger.ErrConflict
		}
	}
	m.sequence++
	versions := make([]string, len(writes))
	for i, w := range writes {
		switch w.Op {
		case ledger.OpPut:
			versions[i] = strconv.Itoa(m.sequence)
			m.docs[w.Key] = ledger.Doc{Version: versions[i], Body: bytes.Clone(w.Body), UpdatedAt: clock(), ExpireAt: w.ExpireAt}
			m.writes[w.Key]++
		case ledger.OpDelete:
			delete(m.docs, w.Key)
			m.writes[w.Key]++
		}
	}
	return versions, nil
}

// List implements ledger.Store.
func (m *Memory) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := clock()
	for key := range m.docs {
		if !slices.Contains(collections, key.Collection) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(m.read(key, now)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Backup returns a copy of all documents.
func (m *Memory) Backup() map[ledger.Key]ledger.Doc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.docs)
}

// Restore puts the documents of a backup in the place of all that are there, with the versions
// and times that they had.
func (m *Memory) Restore(backup map[ledger.Key]ledger.Doc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs = maps.Clone(backup)
}

// Writes returns how often each document was written, by the last part of its
// collection's name.
func (m *Memory) Writes() map[string][]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string][]int)
	for key, n := range m.writes {
		group := key.Collection[strings.LastIndexByte(key.Collection, '/')+1:]
		counts[group] = append(counts[group], n)
	}
	return counts
}

func clock() time.Time { return time.UnixMicro(time.Now().UnixMicro()).UTC() }
