// Package deadletter guarantees that a dead letter holds everything that is needed to
// apply it later as it was meant, that one is kept only when Pub/Sub has said so, and that
// one which Pub/Sub would never take is told apart before it is sent. Encode and Decode
// are pure and undo one another.
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
	KindRequest        Kind = "request"          // the body of a request that is no message
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

// Limits of Pub/Sub, in bytes and counts.
// Source: https://docs.cloud.google.com/pubsub/quotas#resource_limits
const (
	maxAttribute  = 1024
	maxAttributes = 100
	// maxMessage is that of a publish request, less its topic and framing.
	maxMessage = 10_000_000 - 2_000
	// perAttribute is more than the bytes that an attribute takes beside its name and value.
	perAttribute = 16
)

const (
	// MaxError is the length of the error attribute, in bytes: Pub/Sub takes no more.
	MaxError = maxAttribute
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
	// Origin is the rest of that message; nil where there was none, and in letters of
	// KindOutput.
	Origin *Origin
	Data   []byte
}

// LogValue implements slog.LogValuer: the data's size stands for the data, and fields
// that may have come out of a message's attributes are left out.
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

// SetOutput makes the letter one of an output record. It keeps the record's body, or key, the
// record of a row's key alone, if there is no body or if it is over MaxEntry.
func (l *Letter) SetOutput(body, key []byte) {
	if len(body) == 0 || len(body) > MaxEntry {
		body = key
	}
	l.Kind, l.Data = KindOutput, body
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

// Encode returns the message that carries the letter. A letter that is too large for one
// is cut down to the fields that replay needs: the error's text goes first, then the table of a
// record, which is mapped anew, or the origin of an entry, which is applied as it is. See
// Check for one that is too large even so.
func (l Letter) Encode() (data []byte, attributes map[string]string) {
	if attributes, err := l.attributes(); err == nil && fits(l.Data, attributes) == nil {
		return l.Data, attributes
	}
	l = l.least()
	attributes, err := l.attributes()
	if err != nil {
		l.Origin = nil // which Check refuses
		attributes, _ = l.attributes()
	}
	return l.Data, attributes
}

// Check returns why Pub/Sub would never take the message that carries the letter, whatever
// is cut, and nil if it would. The error quotes nothing of the letter.
func (l Letter) Check() error {
	least := l.least()
	attributes, err := least.attributes()
	if err != nil {
		return err
	}
	return fits(l.Data, attributes)
}

// least is the letter with only the fields that replay needs.
func (l Letter) least() Letter {
	l.Error = ""
	switch l.Kind {
	case KindEntry, KindCheckAndMutate:
		l.Origin = nil
	case KindRecord:
		l.Table = ""
	}
	return l
}

func (l Letter) attributes() (map[string]string, error) {
	attributes := map[string]string{attrKind: string(l.Kind), attrError: cut(l.Error), attrTime: format(l.Time)}
	for name, value := range map[string]string{attrTable: l.Table, attrMapping: l.Mapping, attrMessageID: l.MessageID} {
		if value != "" {
			attributes[name] = value
		}
	}
	if !l.PublishTime.IsZero() {
		attributes[attrPublishTime] = format(l.PublishTime)
	}
	if l.Origin == nil {
		return attributes, nil
	}
	return attributes, l.Origin.into(attributes)
}

// fits holds a message against the limits of Pub/Sub.
func fits(data []byte, attributes map[string]string) error {
	size := len(data)
	for name, value := range attributes {
		size += len(name) + len(value) + perAttribute
		switch {
		case len(value) > maxAttribute:
			return fmt.Errorf("its attribute %s has %d bytes; Pub/Sub takes %d", name, len(value), maxAttribute)
		case !utf8.ValidString(value):
			return fmt.Errorf("its attribute %s is not text", name)
		}
	}
	switch {
	case len(attributes) > maxAttributes:
		return fmt.Errorf("it has %d attributes; Pub/Sub takes %d", len(attributes), maxAttributes)
	case size > maxMessage:
		return fmt.Errorf("it has %d bytes; Pub/Sub takes %d", size, maxMessage)
	}
	return nil
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
	case KindRecord, KindRequest, KindOutput:
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
	if l.Origin, err = originOf(attributes); err != nil {
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
