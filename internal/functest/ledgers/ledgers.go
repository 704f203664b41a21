// Package ledgers guarantees that a test which names no store runs on each that is served: a
// file, and Google's emulator of Firestore.
package ledgers

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

// File returns an empty store in a file. It may be used in a testing/synctest bubble.
func File(t *testing.T) ledger.Store {
	t.Helper()
	store, err := file.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Firestore starts the emulator for the time of a test, and returns a function that opens an
// empty store in it for each of its parts. It must not be used in a bubble, whose time would
// stand still.
func Firestore(t *testing.T) func(t *testing.T) ledger.Store {
	t.Helper()
	t.Setenv("FIRESTORE_EMULATOR_HOST", googleemu.Start(t, "firestore"))
	var stores atomic.Int32
	return func(t *testing.T) ledger.Store {
		t.Helper()
		store, err := firestore.Open(t.Context(), fmt.Sprintf("p%d", stores.Add(1)), "(default)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
}
