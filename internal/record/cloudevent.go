package record

import (
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Names of the Pub/Sub attributes that carry a CloudEvent in binary mode.
// Source: Pub/Sub Protocol Binding for CloudEvents,
// github.com/google/knative-gcp/docs/spec/pubsub-protocol-binding.md.
const (
	eventPrefix = "ce-"
	contentType = "content-type" // its case differs between publishers
)

// Members of a CloudEvent that are not attributes.
// Source: CloudEvents 1.0.2, JSON Event Format, 3.1.
const (
	memberData   = "data"
	memberBase64 = "data_base64"
)

// CloudEvents decodes the CloudEvents of a message: one or a batch of them as JSON, or
// one in binary mode, with its attributes in those of the message (ce-id, …) and its
// payload in the message's data. A content type of application/cloudevents… says the
// former, any ce- attribute else the latter; without both the data is read as JSON.
//
// A Value has the event's attributes by name, as text (an extension in JSON may be a
// bool or an integer), and its payload as data, absent where there is none. A payload
// of a JSON type, or of no declared type, is decoded like any record; one of text/* is
// a string; any other is []byte, but for what stands in a JSON event as data, which is
// the value that stands there.
func (d *Decoder) CloudEvents(data []byte, attributes map[string]string) []Record {
	return slices.Collect(d.events(data, attributes, Memory{}))
}

func (d *Decoder) events(data []byte, attributes map[string]string, m Memory) iter.Seq[Record] {
	one := func(r Record) iter.Seq[Record] { return func(yield func(Record) bool) { yield(r) } }
	declared, binary, err := mode(attributes)
	if err != nil {
		return one(Record{Raw: data, Whole: true, Err: err})
	}
	media, _, err := mime.ParseMediaType(declared)
	switch {
	case !strings.HasPrefix(media, "application/cloudevents"):
		if binary {
			return one(d.binary(data, attributes, declared, m))
		}
	case err != nil || !strings.HasSuffix(media, "json") && media != "application/cloudevents":
		return one(Record{Raw: data, Whole: true, Err: errors.New("the CloudEvent is in no format that can be read: use JSON")})
	}
	return func(yield func(Record) bool) {
		p := d.parser(m)
		defer d.done(p)
		batch, i := isBatch(data), 0
		for r := range d.values(data, m) {
			if r.Err == nil {
				if p.readEvent(&r); r.Err != nil && batch {
					r.Err = fmt.Errorf("element %d: %w", i, r.Err)
				}
			}
			if i++; !yield(r) {
				return
			}
		}
	}
}

// oneEvent reads one event of a message: of a batch, or all there is.
func (d *Decoder) oneEvent(data []byte, attributes map[string]string, m Memory) Record {
	if !isBatch(data) {
		for r := range d.events(data, attributes, m) {
			return r
		}
	}
	p := d.parser(m)
	defer d.done(p)
	r := d.one(data, m)
	if r.Err == nil {
		p.readEvent(&r)
	}
	return r
}

// mode returns the declared content type, and whether an attribute of an event stands
// among the message's. Two content types, under names that differ in case, are an error:
// a map would give one or the other.
func mode(attributes map[string]string) (declared string, binary bool, err error) {
	found := false
	for name, value := range attributes {
		binary = binary || strings.HasPrefix(name, eventPrefix)
		if !strings.EqualFold(name, contentType) {
			continue
		}
		if found && value != declared {
			err = errors.New("two attributes content-type whose names differ in case only say different types")
		}
		declared, found = value, true
	}
	return declared, binary, err
}

// readEvent makes an event of the value of a record. The memory for that is charged beyond
// the value's own size.
func (p *parser) readEvent(r *Record) {
	p.size, p.charged = r.Size, r.Size
	r.Value, r.Err = p.event(r.Value)
	p.finish(r)
}

// event checks an event that was read as JSON and decodes its payload.
func (p *parser) event(v any) (any, error) {
	members, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a CloudEvent that is no JSON object")
	}
	for name, value := range members {
		if value == nil && name != memberData { // an attribute that is null is not set
			delete(members, name)
		}
	}
	if err := checkAttributes(members); err != nil {
		return nil, err
	}
	encoded, isBase64 := members[memberBase64]
	if !isBase64 {
		return members, nil
	}
	if _, both := members[memberData]; both {
		return nil, errors.New("a CloudEvent with data and data_base64")
	}
	delete(members, memberBase64)
	text, isText := encoded.(string)
	if err := p.take(2 * int64(len(text))); err != nil {
		return nil, err
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(text)
	if !isText || err != nil || base64.StdEncoding.EncodeToString(payload) != text {
		return nil, errors.New("data_base64 of the CloudEvent is no padded standard base64")
	}
	if members[memberData], err = p.payload(payload, members["datacontenttype"]); err != nil {
		return nil, fmt.Errorf("the CloudEvent's data: %w", err)
	}
	return members, nil
}

// binary reads an event in binary mode.
func (d *Decoder) binary(data []byte, attributes map[string]string, declared string, m Memory) Record {
	r := Record{Raw: data, Whole: true}
	members := map[string]any{}
	for name, value := range attributes {
		if name, ok := strings.CutPrefix(name, eventPrefix); ok {
			members[name] = value
		}
	}
	if declared != "" {
		members["datacontenttype"] = declared
	}
	for _, name := range []string{memberData, memberBase64} {
		if _, ok := members[name]; ok {
			r.Err = errors.New("a CloudEvent with an attribute named like its data")
			return r
		}
	}
	if r.Err = checkAttributes(members); r.Err != nil {
		return r
	}
	if len(data) > 0 {
		p := d.parser(m)
		defer d.done(p)
		p.size, p.charged = 0, 0
		members[memberData], r.Err = p.payload(data, members["datacontenttype"])
		if p.finish(&r); r.Err != nil {
			return r
		}
	}
	r.Value = members
	return r
}

// payload decodes an event's data by its declared type.
func (p *parser) payload(data []byte, declared any) (any, error) {
	switch kind(declared) {
	case jsonMedia:
		return p.parse(data)
	case textMedia:
		if err := p.take(int64(len(data))); err != nil {
			return nil, err
		}
		if !utf8.Valid(data) {
			return nil, errors.New("text that is not UTF-8")
		}
		return string(data), nil
	}
	return data, nil
}

// media is what a content type says of data.
type media int

const (
	jsonMedia media = iota // also where nothing is declared
	textMedia
	otherMedia
)

func kind(declared any) media {
	text, ok := declared.(string)
	if !ok {
		return jsonMedia
	}
	name, _, err := mime.ParseMediaType(text)
	switch {
	case err != nil:
		return otherMedia
	case strings.HasSuffix(name, "/json"), strings.HasSuffix(name, "+json"):
		return jsonMedia
	case strings.HasPrefix(name, "text/"):
		return textMedia
	}
	return otherMedia
}

// checkAttributes holds the attributes against CloudEvents 1.0, with the SDK's types.
// Its errors name attributes that the specification defines, and quote nothing.
func checkAttributes(members map[string]any) error {
	if members["specversion"] != event.CloudEventsVersionV1 {
		return errors.New("a CloudEvent whose specversion is not 1.0")
	}
	var e event.EventContextV1
	for _, name := range slices.Sorted(maps.Keys(members)) { // a fault is the same in every delivery
		value := members[name]
		if text, ok := value.(string); ok && !utf8.ValidString(text) {
			return errors.New("an attribute of the CloudEvent is not UTF-8") // a header can be anything
		}
		var err error
		switch name {
		case memberData, memberBase64, "specversion":
		case "id", "source", "type", "subject", "time", "dataschema", "datacontenttype":
			text, ok := value.(string)
			if !ok || setAttribute(&e, name, text) != nil {
				err = fmt.Errorf("attribute %s of the CloudEvent is not what CloudEvents 1.0 asks for", name)
			}
		default:
			err = checkExtension(name, value)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Validate())) { // whose texts quote values
		return fmt.Errorf("attribute %s of the CloudEvent is missing or not what CloudEvents 1.0 asks for", name)
	}
	return nil
}

func setAttribute(e *event.EventContextV1, name, text string) error {
	var err error
	switch name {
	case "id":
		e.ID = text
	case "source":
		err = e.SetSource(text)
	case "type":
		e.Type = text
	case "subject":
		e.Subject = &text
	case "datacontenttype":
		e.DataContentType = &text
	case "dataschema":
		err = e.SetDataSchema(text)
	case "time":
		_, err = types.ParseTime(text)
	}
	return err
}

// checkExtension takes what an extension may be in JSON. Integers of more than 32 bits
// are more than CloudEvents allows, and taken as they are: nothing is lost by it.
func checkExtension(name string, value any) error {
	if !event.IsExtensionNameValid(name) {
		return errors.New("a CloudEvent with an attribute whose name has other characters than letters and digits")
	}
	switch value.(type) {
	case string, bool, int64, uint64:
		return nil
	}
	return errors.New("a CloudEvent with an extension that is neither text nor a bool nor an integer")
}
