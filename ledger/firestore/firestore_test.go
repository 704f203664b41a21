package firestore

import (
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestFirestoreIsAStore(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", googleemu.Start(t, "firestore"))
	storetest.Run(t, func(t *testing.T) ledger.Store {
		s, err := Open(t.Context(), "p", "(default)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
