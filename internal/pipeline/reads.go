package pipeline

import (
	"regexp"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Scan is one entry of scans.
type Scan struct {
	Name       string
	Pos        Pos
	Table      *Table           // has a literal id
	AppProfile string           // empty: the instance's default
	Rows       []rowrange.Range // in key order, apart from one another; nil: the whole table
	Cells      Cells
	Limit      int64 // rows over the whole scan; 0: all
	Fetch      Fetch
	Emit       *Emit // nil: the whole row
	OnFailure  Policy
	OnLargeRow Policy    // PolicySkip or PolicyFail
	Schedule   *Schedule // nil: it is started by request only
	To         Sink
}

// Cells selects what is read of a row. The zero value reads all of it.
type Cells struct {
	Families     []*Family    // whole families
	Columns      []*ColumnRef // single columns; excludes Families
	KeysOnly     bool
	Versions     int       // the newest of each cell; 0: all
	Since, Until time.Time // [Since, Until), whole milliseconds; zero: unbounded
	Filter       string    // a RowFilter in protobuf text; excludes all the others
	FilterPos    Pos
}

// Fetch bounds one batch between source and sink, in rows and bytes.
type Fetch struct {
	MaxRows  int
	MaxBytes int64
}

// Emit makes records of a row or change. When and ForEach may stand without
// Fields, which then is the whole row or change.
type Emit struct {
	When    Expr
	ForEach Expr
	Fields  []EmitField // in the file's order; nil: all of it
}

// EmitField is one field of a record.
type EmitField struct {
	Name  string
	Pos   Pos
	Value Expr
}

// Schedule starts a scan. Cron has five fields, TimeZone is a name of the time
// zone database.
type Schedule struct {
	Pos            Pos
	Cron, TimeZone string
}

// Change is one entry of changes.
type Change struct {
	Name           string
	Pos            Pos
	Table          *Table // has a literal id
	AppProfile     string // single-cluster routing
	Start          Start
	End            time.Time // zero: never
	Snapshot       bool
	OnExpired      Start
	Window         time.Duration
	IdleStop       bool
	MaxIdle        time.Duration
	MaxStreams     int
	Filter         ChangeFilter
	SelectedCell   *SelectedCell // nil: the mutation log is delivered
	MaxRecordBytes int64
	Emit           *Emit // nil: the whole change
	OnFailure      Policy
	To             Sink
}

// StartKind is how a Start is given.
type StartKind string

// Values of StartKind. StartFail stands only in onExpired, StartAgo only in start.
const (
	StartLatest   StartKind = "latest"
	StartEarliest StartKind = "earliest"
	StartAt       StartKind = "at"
	StartAgo      StartKind = "ago"
	StartFail     StartKind = "fail"
)

// Start is a position of a change stream. Time is set for StartAt; Ago, positive,
// for StartAgo.
type Start struct {
	Kind StartKind
	Time time.Time
	Ago  time.Duration
}

// ChangeFilter selects entries of a change. All patterns match a whole text; of
// Include and Exclude at most one is set.
type ChangeFilter struct {
	Families   NameFilter // of the family's name
	Qualifiers NameFilter // of family:base64(qualifier)
	DropEmpty  bool       // a change without entries left is not delivered
}

// NameFilter takes the names that one of Include matches, or none of Exclude.
type NameFilter struct {
	Include, Exclude []*regexp.Regexp
}

// Match reports whether the filter takes name.
func (f NameFilter) Match(name string) bool {
	for _, p := range f.Exclude {
		if p.MatchString(name) {
			return false
		}
	}
	for _, p := range f.Include {
		if p.MatchString(name) {
			return true
		}
	}
	return len(f.Include) == 0
}

// SelectedCell names the one cell whose upserts and deletes are delivered.
// Qualifier holds literal bytes and may be empty.
type SelectedCell struct {
	Pos       Pos
	Family    *Family
	Qualifier string
	Cluster   string
	Format    string // json
}
