// Package deadletter guarantees that a dead letter holds everything that is needed to
// apply it later as it was meant, and that one is kept only when Pub/Sub has said so.
// Encode and Decode are pure and undo one another.
package deadletter

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
)

// Kind is what a letter's data is.
type Kind string

// Values of Kind.
const (
	KindEntry          Kind = "entry"            // a serialized MutateRowsRequest.Entry
	KindCheckAndMutate Kind = "check-and-mutate" // a serialized CheckAndMutateRowRequest
	KindRecord         Kind = "record"           // a record as it was received
	KindOutput         Kind = "output"           // a record of a scan or change that the sink did not take
)

// Names of the attributes.
const (
	attrKind        = "kind"
	attrTable       = "table"
	attrMapping     = "mapping"
	attrError       = "error"
	attrTime        = "time"
	attrMessageID   = "messageId"
	attrPublishTime = "publishTime"
)

const (
	// MaxError is the length of the error attribute, in bytes: Pub/Sub takes no more.
	MaxError = 1024
	// MaxEntry is the largest entry that travels as one, in bytes. A larger one is kept
	// as the record that made it, which came in a message and so fits into one.
	MaxEntry = 9_000_000
)

// Letter is one entry, record or output that was given up.
type Letter struct {
	Kind    Kind
	Table   string // full resource name; empty where there is none yet
	Mapping string // the mapping's name; empty where none took the record
	Error   string // why; cut to MaxError bytes when encoded
	Time    time.Time
	// MessageID and PublishTime are those of the message that carried the record:
	// a replay uses them again. Empty and zero where there was none.
	MessageID   string
	PublishTime time.Time
	Data        []byte
}

// LogValue implements slog.LogValuer: the data's size stands for the data, and what may
// have come out of a message's attributes is left out.
func (l Letter) LogValue() slog.Value { return slog.GroupValue(slog.Int("bytes", len(l.Data))) }

// SetRow makes the letter one of an entry, conditional where unless is set. An entry
// over MaxEntry leaves the letter as it is, and SetRow reports false.
func (l *Letter) SetRow(table fmt.Stringer, row *bigtablepb.MutateRowsRequest_Entry, unless *bigtablepb.RowFilter) bool {
	kind, message := KindEntry, proto.Message(row)
	if unless != nil {
		kind, message = KindCheckAndMutate, &bigtablepb.CheckAndMutateRowRequest{
			TableName: table.String(), RowKey: row.GetRowKey(), PredicateFilter: unless, FalseMutations: row.GetMutations(),
		}
	}
	data, err := proto.Marshal(message)
	if err != nil || len(data) > MaxEntry { // text that is not UTF-8 where a name must be
		return false
	}
	l.Kind, l.Table, l.Data = kind, table.String(), data
	return true
}

// Row returns the entry of a letter of KindEntry or KindCheckAndMutate, the latter with
// the filter that must yield nothing.
func (l *Letter) Row() (*bigtablepb.MutateRowsRequest_Entry, *bigtablepb.RowFilter, error) {
	switch l.Kind {
	case KindEntry:
		row := new(bigtablepb.MutateRowsRequest_Entry)
		if err := proto.Unmarshal(l.Data, row); err != nil {
			return nil, nil, errors.New("reading a dead letter: its data is no MutateRowsRequest.Entry")
		}
		return row, nil, nil
	case KindCheckAndMutate:
		var r bigtablepb.CheckAndMutateRowRequest
		if err := proto.Unmarshal(l.Data, &r); err != nil {
			return nil, nil, errors.New("reading a dead letter: its data is no CheckAndMutateRowRequest")
		}
		if len(r.GetTrueMutations()) > 0 || r.GetPredicateFilter() == nil {
			return nil, nil, errors.New("reading a dead letter: its condition is not one that this program writes")
		}
		return &bigtablepb.MutateRowsRequest_Entry{RowKey: r.GetRowKey(), Mutations: r.GetFalseMutations()}, r.GetPredicateFilter(), nil
	}
	return nil, nil, errors.New("reading a dead letter: it is of a kind that holds no entry")
}

// Encode returns the message that carries the letter.
func (l Letter) Encode() (data []byte, attributes map[string]string) {
	attributes = map[string]string{attrKind: string(l.Kind), attrError: cut(l.Error), attrTime: format(l.Time)}
	for name, value := range map[string]string{attrTable: l.Table, attrMapping: l.Mapping, attrMessageID: l.MessageID} {
		if value != "" {
			attributes[name] = value
		}
	}
	if !l.PublishTime.IsZero() {
		attributes[attrPublishTime] = format(l.PublishTime)
	}
	return l.Data, attributes
}

// cut shortens text to MaxError bytes of valid UTF-8.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxError {
		return s
	}
	const mark = "..."
	n := MaxError - len(mark)
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

func format(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// ErrNoLetter: a message is not a dead letter of this program.
var ErrNoLetter = errors.New("not a dead letter")

// Decode reads the letter that a message carries. The error is ErrNoLetter where the
// message has none of a letter's marks, as one that Pub/Sub itself moved.
func Decode(data []byte, attributes map[string]string) (Letter, error) {
	l := Letter{
		Kind: Kind(attributes[attrKind]), Table: attributes[attrTable], Mapping: attributes[attrMapping],
		Error: attributes[attrError], MessageID: attributes[attrMessageID], Data: data,
	}
	_, timed := attributes[attrTime]
	if l.Kind == "" || !timed {
		return Letter{}, ErrNoLetter
	}
	switch l.Kind {
	case KindEntry, KindCheckAndMutate:
		if l.Table == "" {
			return Letter{}, errors.New("reading a dead letter: an entry without a table")
		}
	case KindRecord, KindOutput:
	default:
		return Letter{}, fmt.Errorf("%w: attribute %s is none of its kinds", ErrNoLetter, attrKind)
	}
	var err error
	if l.Time, err = parse(attributes, attrTime); err != nil {
		return Letter{}, err
	}
	if l.PublishTime, err = parse(attributes, attrPublishTime); err != nil {
		return Letter{}, err
	}
	return l, nil
}

func parse(attributes map[string]string, name string) (time.Time, error) {
	s := attributes[name]
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a dead letter: attribute %s is no time", name)
	}
	return t.UTC(), nil
}
