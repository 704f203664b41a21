package task

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrUnknown says that the message is of another version of this program, because its
// version is another one or a field is unknown here. It must not be thrown away.
var ErrUnknown = errors.New("another version of this program may read it")

// decode reads one JSON object as exactly as records are read: names are case-sensitive,
// none stands twice, none is unknown, and nothing follows.
func decode(data []byte, into any, version *int) error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	if d.PeekKind() != '{' { // null would be an empty one
		return errNoObject
	}
	err := json.UnmarshalDecode(d, into, json.RejectUnknownMembers(true))
	if names, is := versionOf(data); names && is != Version { // whatever else of it is not understood
		return &unknown{wrongVersion(is)}
	}
	switch {
	case err != nil:
		return explain(err)
	case len(bytes.TrimSpace(data[d.InputOffset():])) > 0:
		return errors.New("there is something after the JSON object")
	case *version != Version: // none, where one is required
		return wrongVersion(*version)
	}
	return nil
}

func wrongVersion(is int) error {
	if is < 0 {
		return fmt.Errorf("its version is no number from 0 on, and this program reads version %d", Version)
	}
	return fmt.Errorf("it is of version %d and this program reads version %d", is, Version)
}

// versionOf returns the version that an object names, -1 for one that is no such number,
// and whether it names one.
func versionOf(data []byte) (names bool, is int) {
	var v struct {
		Version jsontext.Value `json:"v"`
	}
	if json.UnmarshalDecode(jsontext.NewDecoder(bytes.NewReader(data)), &v) != nil || v.Version == nil {
		return false, 0
	}
	if json.Unmarshal(v.Version, &is) != nil || is < 0 {
		return true, -1
	}
	return true, is
}

// unknown is an error that is ErrUnknown beside its text.
type unknown struct{ err error }

func (u *unknown) Error() string        { return u.err.Error() }
func (u *unknown) Is(target error) bool { return target == ErrUnknown }

var errNoObject = errors.New("it is not a JSON object of its kind")

// explain keeps the data out of what the decoder says.
func explain(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && errors.Is(syntax, jsontext.ErrDuplicateName) {
		return fmt.Errorf("%s stands twice", place(syntax.JSONPointer))
	}
	var wrong *json.SemanticError
	if !errors.As(err, &wrong) || wrong.JSONPointer == "" {
		return errNoObject
	}
	if errors.Is(wrong, json.ErrUnknownName) {
		return &unknown{unknownField(wrong)}
	}
	return fmt.Errorf("%s takes %s%s", place(wrong.JSONPointer), kindOf(wrong.GoType), found[wrong.JSONKind])
}

// maxFieldName bounds the field names that errors quote, in bytes.
const maxFieldName = 100

func unknownField(e *json.SemanticError) error {
	name := strconv.Quote(e.JSONPointer.LastToken())
	if len(name) > maxFieldName {
		name = fmt.Sprintf("whose name has %d bytes", len(e.JSONPointer.LastToken()))
	}
	in := "it"
	if parent := e.JSONPointer.Parent(); parent != "" {
		in = place(parent)
	}
	fields := fieldNames(e.GoType)
	if len(fields) == 0 {
		return fmt.Errorf("%s has no field %s: it has none", in, name)
	}
	return fmt.Errorf("%s has no field %s: use %s", in, name, strings.Join(fields, ", "))
}

// place writes a pointer as the documentation does: rows.ranges[0].start. Its names are
// those of fields.
func place(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		if _, err := strconv.Atoi(name); err == nil {
			b.WriteString("[" + name + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

// fieldNames are the fields of a struct in their order, those of the version left out:
// nobody writes it.
func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "v" {
			names = append(names, name)
		}
	}
	return names
}

func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-08-01T00:00:00Z"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "a whole number"
	}
	return "an object"
}

// found says what is there instead, where that is another kind.
var found = map[jsontext.Kind]string{
	'n': ", not null", 't': ", not true", 'f': ", not false", '{': ", not an object", '[': ", not a list",
}
