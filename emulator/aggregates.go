package emulator

import "github.com/bigtable-functions/bigtable-functions/emulator/internal/store"

// DistinctCount reads a cell of a family that counts distinct values: how many
// the sketch has seen, exact up to 512 and then within about 2 %. Only this
// emulator's sketches can be read.
func DistinctCount(value []byte) (uint64, error) { return store.HLLCount(value) }
