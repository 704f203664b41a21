// Package pipeline guarantees that a Pipeline it returns says only what the
// pipeline file may say: every name it refers to exists, every value is within
// its bounds, and every part knows the line and column it came from; what Draft
// returns beside an error is the exception. It reads no files and evaluates no
// expressions.
package pipeline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// Pos is a place in a pipeline file. Line and Column count from 1; a zero Line
// means that the value was not written but is a default.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Expr is a CEL expression as it stands in the file. Pos is where its source text
// starts; Exact says that line l and column c of Source, both from 0, stand at
// Pos.Line+l and Pos.Column+c, so that an error inside it can be placed: true of
// scalars on one line without escapes, and of literal blocks. Columns count
// characters.
type Expr struct {
	Source string
	Place  string // as in write.mappings[0].rowKey
	Pos    Pos
	Exact  bool
	Quote  string // the quotes around it in the file, which YAML takes away: ", ' or none
}

// IsZero reports whether the file has no such expression.
func (e Expr) IsZero() bool { return e.Source == "" }

// TableRef names one Bigtable table.
type TableRef struct{ Project, Instance, Table string }

// String returns the table's full resource name.
func (t TableRef) String() string {
	return t.Parent() + "/tables/" + t.Table
}

// Parent returns the full resource name of the table's instance.
func (t TableRef) Parent() string { return "projects/" + t.Project + "/instances/" + t.Instance }

// ParseTableRef reads a full resource name, as String returns it. It reports false if the text
// has another form; it does not check the three ids.
func ParseTableRef(name string) (TableRef, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 6 || parts[0] != "projects" || parts[2] != "instances" || parts[4] != "tables" {
		return TableRef{}, false
	}
	return TableRef{Project: parts[1], Instance: parts[3], Table: parts[5]}, true
}

// Pipeline is a whole file.
type Pipeline struct {
	Name            string
	CredentialsFile string
	Tables          []*Table // in the file's order
	Write           *Write   // nil where the file has none
	Scans           []*Scan
	Changes         []*Change
	Tests           []*Test
	// Doubts are warnings of names that are allowed and probably not meant, in the file's order.
	Doubts Errors
}

// Table is one entry of tables: a schema, and the table or tables that have it.
type Table struct {
	Name              string // the name used in the file
	Pos               Pos
	Project, Instance string
	ID                string         // empty where IDFrom computes it
	IDFrom            Expr           // a text expression over the record
	IDMatches         *regexp.Regexp // every computed id matches it; nil for a literal id
	Key               cell.Encoding
	AppProfile        string
	AuthorizedView    string // the id of a view of the table that calls name; empty: the whole table
	Create            Create
	NullString        string
	Families          []*Family
}

// Ref names the table. Its Table is empty if the id is computed.
func (t *Table) Ref() TableRef {
	return TableRef{Project: t.Project, Instance: t.Instance, Table: t.ID}
}

// Family returns the declared family of that name, or nil.
func (t *Table) Family(name string) *Family {
	for _, f := range t.Families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Create says what happens when the table is missing.
type Create string

// Values of Create.
const (
	CreateNever    Create = "never"
	CreateIfNeeded Create = "if-needed"
)

// Family is a declared column family.
type Family struct {
	Name      string
	Pos       Pos
	GC        *GCRule // nil: collect nothing
	Aggregate Aggregate
	Columns   []*Column
	// AllowUndeclared says that columns beside Columns are meant to be there.
	AllowUndeclared bool
}

// Undeclared reports whether the family declares columns, allows no others, and does not
// declare this qualifier.
func (f *Family) Undeclared(qualifier string) bool {
	if len(f.Columns) == 0 || f.AllowUndeclared {
		return false
	}
	return !slices.ContainsFunc(f.Columns, func(c *Column) bool { return c.Qualifier == qualifier })
}

// NearestColumn returns the declared qualifier that was probably meant, or "" if none is near.
func (f *Family) NearestColumn(qualifier string) string {
	var names []string
	for _, c := range f.Columns {
		names = append(names, c.Qualifier)
	}
	return Nearest(qualifier, names)
}

// Encoding returns the declared encoding of a qualifier: bytes where it is
// undeclared. Aggregate cells read as int64, sketches as bytes.
func (f *Family) Encoding(qualifier string) cell.Encoding {
	switch f.Aggregate {
	case AggregateSum, AggregateMin, AggregateMax:
		return cell.Encoding{Kind: cell.Int64}
	}
	for _, c := range f.Columns {
		if c.Qualifier == qualifier {
			return c.Encoding
		}
	}
	return cell.Encoding{Kind: cell.Bytes}
}

// Column is a declared column. Qualifier holds literal bytes.
type Column struct {
	Qualifier string
	Pos       Pos
	Encoding  cell.Encoding
}

// Aggregate is the type of an aggregate family; empty for an ordinary one.
type Aggregate string

// Values of Aggregate, all of int64 inputs.
const (
	NoAggregate  Aggregate = ""
	AggregateSum Aggregate = "sum"
	AggregateMin Aggregate = "min"
	AggregateMax Aggregate = "max"
	AggregateHLL Aggregate = "hll"
)

// GCRule is a garbage-collection rule. Exactly one field is set; a composite has
// at least two rules.
type GCRule struct {
	MaxVersions  int
	MaxAge       time.Duration
	Union        []*GCRule
	Intersection []*GCRule
}

// Policy is what happens to a record that can never be written or that nothing takes.
type Policy string

// Values of Policy. Skip stands only in onUnmatched and onLargeRow, Drop only in
// onFailure.
const (
	PolicyFail       Policy = "fail"
	PolicySkip       Policy = "skip"
	PolicyDrop       Policy = "drop"
	PolicyDeadLetter Policy = "dead-letter"
)

// Format is how records lie in a message.
type Format string

// Values of Format.
const (
	FormatJSON       Format = "json"
	FormatNDJSON     Format = "ndjson"
	FormatCloudEvent Format = "cloudevent"
	FormatMutation   Format = "mutation"
)

// Write is the write section.
type Write struct {
	Pos         Pos
	Format      Format
	Skip        Expr
	Mappings    []*Mapping
	OnUnmatched Policy
	OnFailure   Policy
	Unsaid      []string // those of onUnmatched and onFailure that the file leaves out
	Ordered     bool
	Limits      Limits
	Repair      Repair
}

// Limits bounds what one instance of the write function holds.
type Limits struct {
	Batch                 Batch
	InFlight              InFlight
	ConsecutiveRejections int // 0: unlimited
	InstanceClients       int
	TableIdle             time.Duration
}

// Batch bounds one MutateRows request. MaxBytes is in bytes; Concurrency is calls
// in flight per table.
type Batch struct {
	MaxEntries  int
	MaxBytes    int64
	Concurrency int
}

// InFlight bounds what is accepted and not yet answered, over all tables, in
// entries and bytes, and what requests and one record may become in memory.
type InFlight struct {
	MaxEntries      int
	MaxBytes        int64
	MaxRequestBytes int64
	MaxRecordBytes  int64
}

// Repair is how a missing table or family is waited for.
type Repair struct {
	InitialBackoff, MaxBackoff time.Duration
	MaxAttempts                int
}

// Dedupe is how a second delivery is recognised.
type Dedupe string

// Values of Dedupe.
const (
	DedupeNone   Dedupe = "none"
	DedupeWindow Dedupe = "window"
	DedupeMarker Dedupe = "marker"
)

// Mapping makes rows of records. Index is its place in the list.
type Mapping struct {
	Name         string
	Index        int
	Pos          Pos
	When         Expr
	ForEach      Expr
	Table        *Table
	RowKey       Expr
	Timestamp    Expr // zero: the message's publish time, truncated to the millisecond
	Dedupe       Dedupe
	DedupeID     Expr // zero: the message's id and the record's place in it
	AllowFuture  bool // a cell time may be more than a day ahead
	MarkerFamily *Family
	Mutations    []*Mutation
}

// Place is where the mapping stands, as in write.mappings[0].
func (m *Mapping) Place() string { return fmt.Sprintf("write.mappings[%d]", m.Index) }

// MutationKind is the one operation of a mutation.
type MutationKind string

// Values of MutationKind.
const (
	Set            MutationKind = "set"
	Add            MutationKind = "add"
	Merge          MutationKind = "merge"
	DeleteColumns  MutationKind = "deleteColumns"
	DeleteFamilies MutationKind = "deleteFamilies"
	DeleteRow      MutationKind = "deleteRow"
)

// Replace says which older versions a set removes first.
type Replace string

// Values of Replace.
const (
	ReplaceNothing Replace = ""
	ReplaceOlder   Replace = "older"
	ReplaceAll     Replace = "all"
)

// Mutation is one operation on the row. Which fields are used depends on Kind.
type Mutation struct {
	Pos         Pos
	When        Expr
	Kind        MutationKind
	Cells       []Assignment // Set, Add, Merge: in the file's order
	Replace     Replace      // Set
	Columns     []ColumnRef  // DeleteColumns
	From, To    Expr         // DeleteColumns: [from, to); both zero: up to and with the record's time
	AllVersions bool         // DeleteColumns
	Tombstone   bool         // DeleteColumns: a null cell at the record's time is written too
	Families    []*Family    // DeleteFamilies
}

// Assignment gives one cell its value. Qualifier holds literal bytes.
type Assignment struct {
	Family    *Family
	Qualifier string
	Encoding  cell.Encoding
	Value     Expr
}

// ColumnRef names a column of a declared family. Qualifier holds literal bytes.
type ColumnRef struct {
	Family    *Family
	Qualifier string
	Pos       Pos
}
