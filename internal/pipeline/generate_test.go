package pipeline

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

var update = flag.Bool("update", false, "write the schema and the reference instead of comparing them")

const (
	schemaFile    = "../../docs/pipeline.schema.json"
	referenceFile = "../../docs/pipeline-reference.md"
)

// The files are made by: go test ./pipeline -run Current -update
func TestSchemaAndReferenceAreCurrent(t *testing.T) {
	for path, want := range map[string][]byte{schemaFile: schemaJSON(t), referenceFile: []byte(reference())} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the document types say: run go test ./pipeline -run Current -update", path)
		}
	}
}

type object = map[string]any

// schemaMaker turns document types into a JSON Schema.
type schemaMaker struct{ defs object }

func schemaJSON(t *testing.T) []byte {
	t.Helper()
	m := schemaMaker{defs: object{}}
	m.define(reflect.TypeFor[document]())
	root := m.defs["document"].(object)
	delete(m.defs, "document")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "bigtable-functions pipeline"
	root["$defs"] = m.defs
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func defName(t reflect.Type) string { return strings.TrimSuffix(t.Name(), "Doc") }

func (m schemaMaker) define(t reflect.Type) object {
	name := defName(t)
	ref := object{"$ref": "#/$defs/" + name}
	if _, done := m.defs[name]; done {
		return ref
	}
	def := object{"type": "object", "additionalProperties": false}
	m.defs[name] = def
	properties, required := object{}, []string{}
	groups := map[string][]any{}
	for i := range t.NumField() {
		f := fieldOf(t.Field(i))
		if f.key == "" {
			continue
		}
		s := m.schema(t.Field(i).Type, f)
		s["description"] = f.doc
		if f.initial != "" {
			s["default"] = initialJSON(t.Field(i).Type, f)
		}
		properties[f.key] = s
		if f.need {
			required = append(required, f.key)
		}
		if f.only != "" {
			groups[f.only] = append(groups[f.only], object{"required": []string{f.key}})
		}
	}
	def["properties"] = properties
	if len(required) > 0 {
		def["required"] = required
	}
	for _, one := range groups { // no type has more than one group
		def["oneOf"] = one
	}
	return ref
}

func initialJSON(t reflect.Type, f field) any {
	switch t {
	case reflect.TypeFor[toggle]():
		return f.initial == "true"
	case reflect.TypeFor[count](), reflect.TypeFor[rejections]():
		return number(f.initial, 0)
	}
	return f.initial
}

func (m schemaMaker) schema(t reflect.Type, f field) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := scalarSchema(t, f); s != nil {
		return s
	}
	switch {
	case t == reflect.TypeFor[authDoc]():
		return object{"oneOf": []any{object{"const": "oidc"}, m.define(reflect.TypeFor[secretDoc]())}}
	case strings.HasPrefix(t.Name(), "dict["):
		return m.dict(t, f)
	case t.Kind() == reflect.Slice:
		s := object{"type": "array", "items": m.schema(t.Elem(), field{shape: f.shape, oneOf: f.oneOf})}
		if f.lowest == "1" {
			s["minItems"] = 1
		}
		return s
	}
	return m.define(t)
}

func (m schemaMaker) dict(t reflect.Type, f field) object {
	entries, _ := t.FieldByName("entries")
	item := f
	item.keys, item.inner = f.inner, ""
	entryType, _ := entries.Type.Elem().FieldByName("value")
	s := object{"type": "object", "additionalProperties": m.schema(entryType.Type, item)}
	if shape, ok := shapes[f.keys]; ok {
		s["propertyNames"] = object{"pattern": shape.form.String()}
	}
	if f.lowest == "1" {
		s["minProperties"] = 1
	}
	return s
}

const durationForm = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// scalarSchema returns the schema of a scalar type, nil for the others.
func scalarSchema(t reflect.Type, f field) object {
	switch t {
	case reflect.TypeFor[text]():
		s := object{"type": "string"}
		if len(f.oneOf) > 0 {
			s["enum"] = f.oneOf
		}
		if shape, ok := shapes[f.shape]; ok {
			s["pattern"] = shape.form.String()
		}
		return s
	case reflect.TypeFor[toggle]():
		return object{"type": "boolean"}
	case reflect.TypeFor[count]():
		return countSchema(f)
	case reflect.TypeFor[rejections]():
		return object{"oneOf": []any{countSchema(f), object{"const": "unlimited"}}}
	case reflect.TypeFor[size]():
		return object{"type": "string", "pattern": sizeText.String()}
	case reflect.TypeFor[span]():
		return object{"type": "string", "pattern": durationForm}
	case reflect.TypeFor[moment]():
		return object{"type": "string", "pattern": momentText.String()}
	case reflect.TypeFor[start]():
		words := "latest|earliest"
		if f.key == "onExpired" {
			words += "|fail"
		}
		return object{"anyOf": []any{
			object{"type": "string", "pattern": "^(" + words + ")$"},
			object{"type": "string", "pattern": momentText.String()},
			object{"type": "string", "pattern": `^-[0-9]`},
		}}
	case reflect.TypeFor[pattern]():
		return object{"type": "string", "minLength": 1, "format": "regex"}
	case reflect.TypeFor[encoding]():
		return object{"type": "string", "pattern": cell.Pattern}
	case reflect.TypeFor[name]():
		binary := object{"type": "object", "required": []string{"base64"}, "additionalProperties": false,
			"properties": object{"base64": object{"type": "string"}}}
		return object{"oneOf": []any{object{"type": "string"}, binary}}
	case reflect.TypeFor[expr]():
		return object{"type": []string{"string", "number", "boolean"}, "pattern": `\S`}
	case reflect.TypeFor[literal]():
		return object{}
	}
	return nil
}

func countSchema(f field) object {
	s := object{"type": "integer", "minimum": number(f.lowest, 0)}
	if f.highest != "" {
		s["maximum"] = number(f.highest, 0)
	}
	return s
}

func reference() string {
	var b strings.Builder
	b.WriteString(`# Pipeline file: every field

<!-- Generated from the types in internal/pipeline/document.go: go test ./internal/pipeline -run Current -update -->

Words in capitals are names of yours. Types: **text**; **expression**, in CEL; **name**, the literal bytes of a
key or qualifier, text or ` + "`{base64: \"…\"}`" + `; **size**, such as ` + "`64MiB`" + `; **duration**, such as ` + "`10s`" + `; **time**, such as
` + "`\"2026-08-01T00:00:00Z\"`" + `; **pattern**, in RE2's syntax, matching all of a text; **value**, any YAML, taken as JSON.
"One of" marks fields of which exactly one is written.

An editor with a YAML language server checks a file whose first line is
` + "`# yaml-language-server: $schema=https://raw.githubusercontent.com/bigtable-functions/bigtable-functions/main/docs/pipeline.schema.json`" + `.

| path | type | default | bounds | |
|---|---|---|---|---|
`)
	referenceRows(&b, reflect.TypeFor[document](), "", map[reflect.Type]bool{})
	return b.String()
}

// placeholders are the names that stand for the user's own below a field.
var placeholders = map[string]string{
	"tables": "TABLE", "families": "FAMILY", "columns": "QUALIFIER", "scans": "SCAN", "changes": "CHANGE",
	"emit": "FIELD", "attributes": "NAME", "headers": "NAME",
	"set": "FAMILY.QUALIFIER", "add": "FAMILY.QUALIFIER", "merge": "FAMILY.QUALIFIER", "cells": "FAMILY.QUALIFIER",
	"deleteColumns": "FAMILY",
}

func referenceRows(b *strings.Builder, t reflect.Type, path string, above map[reflect.Type]bool) {
	above[t] = true
	defer delete(above, t)
	for i := range t.NumField() {
		f := fieldOf(t.Field(i))
		if f.key == "" {
			continue
		}
		at := path + f.key
		kind, inner, below := referenceType(t.Field(i).Type, f)
		if inner != nil && above[inner] {
			inner = nil
		}
		note := f.doc
		switch {
		case f.need:
			note = "**required**; " + note
		case f.only != "":
			note = "one of; " + note
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", at, kind, code(f.initial), escapeCell(referenceBounds(f)), escapeCell(note))
		if inner != nil {
			referenceRows(b, inner, at+below+".", above)
		}
	}
}

// referenceType returns the name of a type, the struct inside it, and what stands
// between the path of the field and the struct's fields.
func referenceType(t reflect.Type, f field) (kind string, inner reflect.Type, below string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	names := map[reflect.Type]string{
		reflect.TypeFor[text](): "text", reflect.TypeFor[toggle](): "true or false", reflect.TypeFor[count](): "number",
		reflect.TypeFor[rejections](): "number or `unlimited`", reflect.TypeFor[size](): "size", reflect.TypeFor[span](): "duration",
		reflect.TypeFor[moment](): "time", reflect.TypeFor[start](): "word, time or duration", reflect.TypeFor[pattern](): "pattern",
		reflect.TypeFor[encoding](): "encoding", reflect.TypeFor[name](): "name", reflect.TypeFor[expr](): "expression",
		reflect.TypeFor[literal](): "value", reflect.TypeFor[authDoc](): "`oidc` or mapping",
	}
	if n, ok := names[t]; ok {
		return n, nil, ""
	}
	switch {
	case strings.HasPrefix(t.Name(), "dict["):
		entries, _ := t.FieldByName("entries")
		value, _ := entries.Type.Elem().FieldByName("value")
		kind, inner, below = referenceType(value.Type, f)
		key := placeholders[f.key]
		if strings.HasPrefix(value.Type.Name(), "dict[") {
			return kind, inner, below
		}
		if inner == nil {
			return "mapping of " + key + " to " + kind, nil, ""
		}
		return "mapping", inner, "." + key + below
	case t.Kind() == reflect.Slice:
		kind, inner, below = referenceType(t.Elem(), f)
		if inner == nil {
			return "list of " + kind, nil, ""
		}
		return "list", inner, "[]" + below
	}
	return "mapping", t, ""
}

func referenceBounds(f field) string {
	switch shape, ok := shapes[f.shape]; {
	case len(f.oneOf) > 0:
		return "`" + strings.Join(f.oneOf, "`, `") + "`"
	case ok:
		return shape.rule
	}
	if shape, ok := shapes[f.keys]; ok {
		return "names: " + shape.rule
	}
	if f.lowest == "" && f.highest == "" {
		return ""
	}
	return bounds(f)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func escapeCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
