package pipeline

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// wholeFiles are pipeline files without fault: those of the tests, the examples and
// the documentation.
func wholeFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*/pipeline.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[path] = data
		}
	}
	text, err := os.ReadFile("../../docs/pipeline.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	block, _, found := strings.Cut(rest, "\n```")
	if !found || len(files) < 3 {
		t.Fatal("no whole files found")
	}
	files["../../docs/pipeline.md"] = []byte(block + "\n")
	return files
}

// instance reads a file as a schema validator would, without our rules; nil where
// YAML readers differ.
func instance(t *testing.T, data []byte) any {
	t.Helper()
	var errs faults
	s := newSource("", data)
	root := readYAML(s, data, &errs)
	if root == nil {
		t.Fatalf("not YAML: %v", errs.list)
	}
	d := &decoder{checker: checker{source: s, errs: &errs, bad: badNodes{}}}
	text := d.json(nil, root, "")
	if len(errs.list) > 0 {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaFile, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestTheSchemaAcceptsWhatParses(t *testing.T) {
	schema := compileSchema(t)
	for path, data := range wholeFiles(t) {
		if _, err := Parse(data, Options{File: path, Project: "p-x", Instance: "i-x"}); err != nil {
			t.Errorf("Parse: %v", err)
		}
		if err := schema.Validate(instance(t, data)); err != nil {
			t.Errorf("%s: the schema refuses it: %v", path, err)
		}
	}
}

func TestTheSchemaRefusesFaultsOfShapeAndNoOthers(t *testing.T) {
	schema := compileSchema(t)
	refused := 0
	for _, f := range brokenFiles(t) {
		var errs faults
		if readYAML(newSource("", f.data), f.data, &errs) == nil || len(errs.list) > 0 {
			if f.shape {
				t.Errorf("%s: is marked as one of shape, but a validator sees no document", f.name)
			}
			continue
		}
		v := instance(t, f.data)
		if v == nil && !f.shape {
			continue
		}
		err := schema.Validate(v)
		switch {
		case f.shape && err == nil:
			t.Errorf("%s: the schema accepts it", f.name)
		case !f.shape && err != nil && !yamlRule(f.name):
			t.Errorf("%s: the schema refuses it, so its fault is one of shape: %v", f.name, err)
		case err != nil:
			refused++
		}
	}
	if refused < 25 {
		t.Errorf("only %d files refused", refused)
	}
}

// yamlRule tells the faults that depend on how a YAML reader takes a scalar: some
// validators see them.
func yamlRule(file string) bool {
	switch file {
	case "tag.yaml", "merge-key.yaml":
		return true
	}
	return false
}

func TestEveryFieldStandsInAWholeFile(t *testing.T) {
	given := map[string]bool{}
	for path, data := range wholeFiles(t) {
		var errs faults
		doc, _ := read(data, path, &errs)
		if doc == nil {
			t.Fatal(errs.list)
		}
		collect(reflect.ValueOf(doc).Elem(), given)
	}
	eachField(reflect.TypeFor[document](), map[reflect.Type]bool{}, func(t2 reflect.Type, f field) {
		if !given[t2.Name()+"."+f.key] {
			t.Errorf("no whole file has %s of %s", f.key, t2.Name())
		}
	})
}

// collect notes the fields that a document has.
func collect(v reflect.Value, given map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), given)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), given)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			t := v.Type().Field(i)
			if t.Name == "entries" || t.Name == "value" || t.Name == "secret" {
				collect(v.Field(i), given)
			}
			if t.Tag.Get("key") == "" {
				continue
			}
			if isGiven(v.Field(i)) {
				given[v.Type().Name()+"."+t.Tag.Get("key")] = true
			}
			collect(v.Field(i), given)
		}
	}
}

func isGiven(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice:
		return !v.IsNil()
	}
	own := v.FieldByName("at")
	return own.IsValid() && own.FieldByName("state").Int() != int64(absent)
}

// eachField calls visit for every field of a document type and of those below it.
func eachField(t reflect.Type, seen map[reflect.Type]bool, visit func(reflect.Type, field)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("key") != "" {
			visit(t, fieldOf(f))
			eachField(f.Type, seen, visit)
		}
		switch f.Name {
		case "entries", "value", "secret":
			eachField(f.Type, seen, visit)
		}
	}
}
