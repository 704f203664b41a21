package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Origin is the part that a letter keeps of the message that its record came in, beside the
// id and the publish time: a mapping may read all of it.
type Origin struct {
	Attributes   map[string]string
	OrderingKey  string
	Subscription string
	// Place is the record's among those of the message, from 0.
	Place int
	// Whole says that the data is all that the message holds, and so is read as a message
	// is. Otherwise it is one record, and read as one, also where it is an array.
	Whole bool
}

// An origin is JSON in the attribute message. If it is longer than an attribute may be, it
// goes on in message.2, message.3 and so on.
const (
	attrMessage = "message"
	maxParts    = 80 // of the 100 attributes that a message may have
)

// text is a string that JSON may not be able to hold: a header can be anything.
type text string

type binary struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON writes valid UTF-8 as a string, and anything else as {"base64": "…"}.
func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(binary{[]byte(t)})
	}
	return encode(string(t))
}

// UnmarshalJSON reads both.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw binary
		if err := json.Unmarshal(b, &raw); err != nil {
			return err
		}
		*t = text(raw.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// encode is json.Marshal without the escapes of HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// written is an Origin as JSON.
type written struct {
	Place        int             `json:"place"`
	Whole        bool            `json:"whole,omitempty"`
	OrderingKey  text            `json:"orderingKey,omitempty"`
	Subscription text            `json:"subscription,omitempty"`
	Attributes   map[string]text `json:"attributes,omitempty"`
}

// errAttributes: no letter can hold the attributes.
var errAttributes = fmt.Errorf("its message's attributes take more than %d bytes as JSON, or one has a name that is not text", maxParts*maxAttribute)

// into adds the origin to a letter's attributes.
func (o *Origin) into(attributes map[string]string) error {
	w := written{Place: o.Place, Whole: o.Whole, OrderingKey: text(o.OrderingKey), Subscription: text(o.Subscription)}
	if len(o.Attributes) > 0 {
		w.Attributes = make(map[string]text, len(o.Attributes))
		for name, value := range o.Attributes {
			if !utf8.ValidString(name) {
				return errAttributes
			}
			w.Attributes[name] = text(value)
		}
	}
	b, err := encode(w)
	if err != nil {
		return fmt.Errorf("writing a dead letter: %w", err)
	}
	rest := string(b)
	for i := 1; rest != ""; i++ {
		if i > maxParts {
			return errAttributes
		}
		n := min(len(rest), maxAttribute)
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n--
		}
		attributes[partName(i)], rest = rest[:n], rest[n:]
	}
	return nil
}

// partName is message, message.2, message.3 and so on.
func partName(i int) string {
	if i == 1 {
		return attrMessage
	}
	return attrMessage + "." + strconv.Itoa(i)
}

// originOf reads the origin from a letter's attributes; nil: there is none.
func originOf(attributes map[string]string) (*Origin, error) {
	var all strings.Builder
	for i := 1; ; i++ {
		part, ok := attributes[partName(i)]
		if !ok {
			break
		}
		all.WriteString(part)
	}
	if all.Len() == 0 {
		return nil, nil
	}
	var w written
	if err := json.Unmarshal([]byte(all.String()), &w); err != nil || w.Place < 0 {
		return nil, errors.New("reading a dead letter: attribute message is not what this program writes")
	}
	o := &Origin{OrderingKey: string(w.OrderingKey), Subscription: string(w.Subscription), Place: w.Place, Whole: w.Whole}
	if len(w.Attributes) > 0 {
		o.Attributes = make(map[string]string, len(w.Attributes))
		for name, value := range w.Attributes {
			o.Attributes[name] = string(value)
		}
	}
	return o, nil
}
