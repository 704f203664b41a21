package pipeline

import (
	"encoding/json"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// Test is one entry of tests. Exactly one of Message, Row and Change is set.
type Test struct {
	Name    string
	Pos     Pos
	Message *TestMessage
	Row     *TestRow
	Change  *TestChange
	Expect  Expect
}

// TestMessage is a message as write would receive it.
type TestMessage struct {
	ID, OrderingKey, Subscription string
	PublishTime                   time.Time
	Attributes                    map[string]string
	Data                          []byte
}

// Literal is a value that a test writes out, as JSON.
type Literal struct {
	Pos  Pos
	JSON json.RawMessage
}

// TestCell is a value of one column. Qualifier holds literal bytes.
type TestCell struct {
	Family    *Family
	Qualifier string
	Encoding  cell.Encoding
	Value     Literal
}

// TestRow is a row as a scan would read it.
type TestRow struct {
	Scan  *Scan
	Key   Literal
	Cells []TestCell
}

// TestChange is a change as a change stream would read it.
type TestChange struct {
	Change                   *Change
	RowKey                   Literal
	Type                     string // USER or GARBAGE_COLLECTION
	Cluster                  string
	CommitTime, LowWatermark time.Time
	TieBreaker               int
	Entries                  []TestEntry
}

// TestEntry is one entry of a change. Qualifier holds literal bytes; Family is
// nil for a family that the table does not declare.
type TestEntry struct {
	Pos        Pos
	Kind       string // SET_CELL, DELETE_CELLS, DELETE_FAMILY, ADD_TO_CELL or MERGE_TO_CELL
	FamilyName string
	Family     *Family
	Qualifier  string
	Timestamp  time.Time
	Value      Literal
	From, To   time.Time // DELETE_CELLS: [From, To); zero: unbounded
}

// Expect is what a test wants. Rows and Records are all that may come of it.
type Expect struct {
	Pos      Pos
	Skipped  bool
	Rows     []ExpectRow
	Rejected []ExpectRejected
	Records  []Literal
}

// ExpectRow is a row that is written. TableID is set where the table's id is
// computed.
type ExpectRow struct {
	Pos       Pos
	Table     *Table
	TableID   string
	RowKey    Literal
	Timestamp time.Time // zero: any
	Mutations []ExpectMutation
}

// ExpectMutation is a Mutation with its values written out.
type ExpectMutation struct {
	Pos         Pos
	Kind        MutationKind
	Cells       []TestCell
	Replace     Replace
	Columns     []ColumnRef
	From, To    time.Time
	AllVersions bool
	Tombstone   bool
	Families    []*Family
}

// ExpectRejected is a record that fails. Error is part of the error's text; empty
// Mapping and Place match where nothing is named.
type ExpectRejected struct {
	Pos     Pos
	Mapping string
	Place   string
	Error   string
}
