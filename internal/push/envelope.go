package push

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
)

// errUnknownShape is what a body is that was told to be none of the shapes.
var errUnknownShape = errors.New("body is of no known shape: " +
	"neither a Pub/Sub push request with message and subscription, alone or as the data of a CloudEvent, nor a payload with x-goog-pubsub headers")

// field is a set of the fields that an envelope may name, in the spellings that
// Pub/Sub writes. Both spellings of the id and of the time stand in real
// requests, with equal values.
// Source: https://docs.cloud.google.com/pubsub/docs/push#receive_push
type field uint16

const (
	fieldMessage field = 1 << iota
	fieldSubscription
	fieldDeliveryAttempt
	fieldData
	fieldAttributes
	fieldOrderingKey
	fieldMessageID
	fieldMessageIDSnake
	fieldPublishTime
	fieldPublishTimeSnake
)

// envelope reads one push request.
type envelope struct {
	scan scanner
	msg  *Message
	seen field
	time []byte // publish time as written
	bad  error  // data that does not decode; the rest is read all the same
}

// parseEnvelope fills m from the body of a push request. It accepts RFC 8259
// JSON and nothing laxer, unknown fields, null as absence, and no field twice.
// After an error m holds what stood before it.
func parseEnvelope(body []byte, m *Message) error {
	e := envelope{scan: scanner{b: body}, msg: m}
	if !e.scan.at('{') {
		return errUnknownShape
	}
	if err := e.scan.object(e.outer); err != nil {
		return err
	}
	if err := e.scan.end(); err != nil {
		return err
	}
	return e.check()
}

// check reports what an envelope that was read whole lacks.
func (e *envelope) check() error {
	m := e.msg
	if e.seen&fieldMessage == 0 || e.seen&fieldSubscription == 0 {
		return errUnknownShape
	}
	if e.time != nil {
		if err := m.PublishTime.UnmarshalText(e.time); err != nil {
			return errors.New("publishTime is not an RFC 3339 time")
		}
		m.PublishTime = m.PublishTime.UTC()
	}
	if m.ID == "" {
		return errors.New("message has no messageId")
	}
	return e.bad
}

func (e *envelope) outer(name []byte) error {
	switch string(name) {
	case "message":
		if err := e.once(fieldMessage); err != nil {
			return err
		}
		if !e.scan.at('{') {
			return errUnknownShape
		}
		return e.scan.object(e.inner)
	case "subscription":
		if !e.scan.at('"') {
			return errUnknownShape
		}
		return e.text(fieldSubscription, &e.msg.Subscription)
	case "deliveryAttempt":
		return e.attempt()
	}
	return e.scan.skip(0)
}

func (e *envelope) inner(name []byte) error {
	switch string(name) {
	case "data":
		return e.data()
	case "attributes":
		return e.attributes()
	case "orderingKey":
		return e.text(fieldOrderingKey, &e.msg.OrderingKey)
	case "messageId":
		return e.id(fieldMessageID)
	case "message_id":
		return e.id(fieldMessageIDSnake)
	case "publishTime":
		return e.publishTime(fieldPublishTime)
	case "publish_time":
		return e.publishTime(fieldPublishTimeSnake)
	}
	return e.scan.skip(0)
}

// once marks a field as seen. A second one is refused: readers disagree on
// which of the two counts.
func (e *envelope) once(f field) error {
	if e.seen&f != 0 {
		return e.scan.fail("a field stands twice")
	}
	e.seen |= f
	return nil
}

func (e *envelope) text(f field, into *string) error {
	s, err := e.str(f)
	*into = string(s)
	return err
}

// str reads a string or null, which is nil.
func (e *envelope) str(f field) ([]byte, error) {
	if err := e.once(f); err != nil {
		return nil, err
	}
	if e.scan.at('n') {
		return nil, e.scan.skip(0)
	}
	return e.scan.str()
}

func (e *envelope) id(f field) error {
	s, err := e.str(f)
	if err != nil || len(s) == 0 {
		return err
	}
	switch e.msg.ID {
	case "":
		e.msg.ID = string(s)
	case string(s):
	default:
		return e.scan.fail("messageId and message_id differ")
	}
	return nil
}

func (e *envelope) publishTime(f field) error {
	s, err := e.str(f)
	if err != nil || len(s) == 0 {
		return err
	}
	if e.time != nil && string(e.time) != string(s) {
		return e.scan.fail("publishTime and publish_time differ")
	}
	e.time = s
	return nil
}

func (e *envelope) attempt() error {
	if err := e.once(fieldDeliveryAttempt); err != nil {
		return err
	}
	e.scan.space()
	start := e.scan.i
	if err := e.scan.skip(0); err != nil {
		return err
	}
	text := string(e.scan.b[start:e.scan.i])
	if text == "null" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return e.scan.fail("deliveryAttempt is not a whole number")
	}
	e.msg.DeliveryAttempt = int(n)
	return nil
}

func (e *envelope) attributes() error {
	if err := e.once(fieldAttributes); err != nil {
		return err
	}
	if e.scan.at('n') {
		return e.scan.skip(0)
	}
	return e.scan.object(func(name []byte) error {
		value, err := e.scan.str()
		if err != nil {
			return err
		}
		if e.msg.Attributes == nil {
			e.msg.Attributes = make(map[string]string)
		}
		if _, twice := e.msg.Attributes[string(name)]; twice {
			return e.scan.fail("an attribute stands twice")
		}
		e.msg.Attributes[string(name)] = string(value)
		return nil
	})
}

// data decodes the payload once, straight from the body: a string of nothing
// but the alphabet of base64 needs no other check. Anything else takes the way
// of every string.
func (e *envelope) data() error {
	if raw, ok := e.scan.untilQuote(); ok {
		if data, err := decodeBase64(raw); err == nil {
			if err := e.once(fieldData); err != nil {
				return err
			}
			e.scan.i += len(raw) + 2
			e.msg.Data = data
			return nil
		}
	}
	s, err := e.str(fieldData)
	if err != nil {
		return err
	}
	data, err := decodeBase64(s)
	if err != nil {
		e.bad = e.scan.fail("data is not padded standard base64")
		return nil
	}
	e.msg.Data = data
	return nil
}

// decodeBase64 accepts the padded standard alphabet, which is what Pub/Sub
// writes, and no line breaks, which the standard library skips.
func decodeBase64(s []byte) ([]byte, error) {
	want := len(s) / 4 * 3
	if len(s)%4 != 0 {
		return nil, base64.CorruptInputError(len(s))
	}
	for i := len(s) - 1; i >= 0 && s[i] == '='; i-- {
		want--
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(data, s)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, fmt.Errorf("line break in base64")
	}
	return data[:n], nil
}
