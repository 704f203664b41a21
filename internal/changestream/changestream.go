// Package changestream guarantees that no key of a table loses its place in a change
// stream: a record is complete or an error, a partition that closes is replaced by
// successors that hold exactly its keys, and a key that no partition holds is found and
// opened again from a position that is not later than the last one acknowledged.
//
// Everything here is pure: it does no I/O and takes the time as an argument. The ledger
// keeps what it returns, and functions/changes does what it asks for.
package changestream

import (
	"crypto/sha256"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Type is the cause of a change.
type Type int

// The types of a record. The service has no others that start one.
const (
	User              Type = 1 // an application's write
	GarbageCollection Type = 2 // a family's garbage-collection rule
)

// String returns the name that the service gives the type.
func (t Type) String() string {
	if t == GarbageCollection {
		return "GARBAGE_COLLECTION"
	}
	return "USER"
}

// Kind is what an entry does.
type Kind int

// The kinds of entries. A deleted row arrives as one DeleteFamily for each family that
// held data (docs/protocol.md, change streams).
const (
	SetCell Kind = iota
	DeleteCells
	DeleteFamily
	AddToCell
	MergeToCell
)

// String returns the name that records carry.
func (k Kind) String() string {
	return [...]string{"SET_CELL", "DELETE_CELLS", "DELETE_FAMILY", "ADD_TO_CELL", "MERGE_TO_CELL"}[k]
}

// Entry is one mutation of a record, in the order in which it was applied.
type Entry struct {
	Kind      Kind
	Family    string
	Qualifier string // not of DeleteFamily
	// Timestamp is the cell's, in microseconds since 1970: of SetCell, AddToCell and
	// MergeToCell.
	Timestamp int64
	// Value is the cell of SetCell, and the input of AddToCell and MergeToCell if it is
	// not a number.
	Value []byte
	// Number is the input of AddToCell if IsNumber is set.
	Number   int64
	IsNumber bool
	// Start and End bound the cell times of DeleteCells, in microseconds, Start
	// included, End not. An End of 0 is no end.
	Start, End int64
}

// Record is one change of one row.
type Record struct {
	RowKey     string
	Type       Type
	Cluster    string    // where it was applied; empty of garbage collection
	CommitTime time.Time // the same in the records of every cluster
	// TieBreaker orders changes of one cell that have one commit time and come from
	// different clusters: the larger one wins.
	TieBreaker int32
	Entries    []Entry
	// Bytes counts the row key, families, qualifiers and values.
	Bytes int64
	// Oversize says that Bytes is over the Assembler's limit. The record then has no
	// Entries: they were thrown away as they came.
	Oversize bool
	// Position is the one just after the record.
	Position

	content [sha256.Size]byte // of the entries of an Oversize record
}

// Position is where a partition's stream goes on.
type Position struct {
	Token string
	// LowWatermark is the service's estimate of the earliest commit time still to
	// come. It may stall and move backwards, and proves nothing about completeness.
	LowWatermark time.Time
}

// Token resumes the stream of a range of keys.
type Token struct {
	Range rowrange.Range
	Value string // opaque
}
