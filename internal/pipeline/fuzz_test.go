package pipeline

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/broken/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(minimal))
	f.Add([]byte(ten))
	schema := compileSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data, Options{File: "f"})
		if err != nil {
			checkErrors(t, data, err)
			return
		}
		checkExpressions(t, newSource("f", data), reflect.ValueOf(p))
		checkSchema(t, schema, data)
	})
}

// checkErrors checks that every fault lies in the file, in order.
func checkErrors(t *testing.T, data []byte, err error) {
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("got %v, want Errors", err)
	}
	lines := newSource("f", data).lines
	last := 1
	for _, e := range errs {
		if e.Pos.Line < last || e.Pos.Line > len(lines)+1 || e.Pos.Column < 1 || e.Pos.File != "f" || e.Message == "" {
			t.Errorf("%v is not in order or not in the file of %d lines", e, len(lines))
		}
		last = e.Pos.Line
	}
}

// checkExpressions checks that every exact expression stands where it says.
func checkExpressions(t *testing.T, s source, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			checkExpressions(t, s, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			checkExpressions(t, s, v.Index(i))
		}
	case reflect.Struct:
		if e, ok := v.Interface().(Expr); ok {
			checkExpression(t, s, e)
			return
		}
		if v.Type().PkgPath() != reflect.TypeFor[Expr]().PkgPath() {
			return
		}
		for i := range v.NumField() {
			checkExpressions(t, s, v.Field(i))
		}
	}
}

func checkExpression(t *testing.T, s source, e Expr) {
	if !e.Exact {
		return
	}
	for i, line := range strings.Split(e.Source, "\n") {
		if line != "" && !strings.HasPrefix(s.from(e.Pos.Line+i, e.Pos.Column), line) {
			t.Errorf("line %d of %+v is not in the file", i, e)
		}
	}
}

// checkSchema checks that the schema accepts what parses, where it sees the same
// values: YAML readers may differ on the rest.
func checkSchema(t *testing.T, schema *jsonschema.Schema, data []byte) {
	var errs faults
	s := newSource("", data)
	root := readYAML(s, data, &errs)
	d := &decoder{checker: checker{source: s, errs: &errs, bad: badNodes{}}}
	text := d.json(nil, root, "")
	if len(errs.list) > 0 {
		return
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("the schema refuses what parses: %v", err)
	}
}
