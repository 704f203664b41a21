package file

import (
	"path/filepath"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestFileIsAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "ledger.db")
	storetest.Run(t, func(t *testing.T) ledger.Store {
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
