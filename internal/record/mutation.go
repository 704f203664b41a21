package record

import (
	"errors"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

// Entry is an entry that a message carries ready-made.
type Entry struct {
	Table  string // full resource name
	Row    *bigtablepb.MutateRowsRequest_Entry
	Unless *bigtablepb.RowFilter // not nil: apply only where it matches nothing
}

// Mutation reads a message that is a dead letter of kind entry or check-and-mutate. A
// letter of another kind holds nothing that could be applied without a mapping, and is
// a record with an error.
func Mutation(data []byte, attributes map[string]string) Record {
	r := Record{Raw: data, Whole: true}
	letter, err := deadletter.Decode(data, attributes)
	if errors.Is(err, deadletter.ErrNoLetter) {
		r.Err = errors.New("the message is no mutation: one has the attributes kind, table and time of a dead letter")
		return r
	}
	if err != nil {
		r.Err = err
		return r
	}
	r.letter = &letter
	switch letter.Kind {
	case deadletter.KindRecord:
		r.Err = errors.New("a dead letter of kind record holds no mutation: send it to the pipeline whose mapping refused it")
	case deadletter.KindOutput:
		r.Err = errors.New("a dead letter of kind output holds no mutation: it belongs to a scan or change stream")
	default:
		r.Entry, r.Err = entryOf(&letter)
	}
	return r
}

func entryOf(l *deadletter.Letter) (*Entry, error) {
	row, unless, err := l.Row()
	if err != nil {
		return nil, err
	}
	return &Entry{Table: l.Table, Row: row, Unless: unless}, nil
}

// Sizes of the parts of a serialized entry in memory, in bytes, beside twice its length.
const (
	sizeOfField      = 320 // a mutation
	sizeOfFilterByte = 40
	fieldOfFilter    = 6 // predicate_filter of CheckAndMutateRowRequest
)

// boundedMutation is Mutation within the memory that it is given.
func boundedMutation(data []byte, attributes map[string]string, m Memory) Record {
	p := parser{memory: m}
	if err := p.takeEntry(data); err != nil {
		return Record{Raw: data, Whole: true, Err: err, Size: p.size}
	}
	r := Mutation(data, attributes)
	r.Size = p.size
	return r
}

// EntryOf reads the entry of a dead letter of kind entry or check-and-mutate, within the
// memory that it is given.
func EntryOf(l *deadletter.Letter, m Memory) (*Entry, error) {
	p := parser{memory: m}
	if err := p.takeEntry(l.Data); err != nil {
		return nil, err
	}
	return entryOf(l)
}

// takeEntry counts the bytes that a serialized entry is about to become.
func (p *parser) takeEntry(data []byte) error {
	err := p.take(2 * int64(len(data)))
	for rest := data; err == nil && len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			break // no entry, as reading it will say
		}
		value := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if value < 0 {
			break
		}
		size := int64(sizeOfField)
		if number == fieldOfFilter {
			size += sizeOfFilterByte * int64(value)
		}
		err, rest = p.take(size), rest[n+value:]
	}
	if err != nil {
		return err
	}
	return p.settle()
}
