package storetest

import (
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func TestMemoryIsAStore(t *testing.T) {
	stores := make(map[string]*Memory)
	Run(t, func(t *testing.T) ledger.Store {
		if stores[t.Name()] == nil {
			stores[t.Name()] = NewMemory()
		}
		return stores[t.Name()]
	})
}
