package scanjob_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

const defined = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string, total: int64}}}}
scans:
  all:
    table: orders
    rows: {prefixes: [a]}
    cells: {families: [cf], versions: 1}
    fetch: {maxRows: 10}
    when: row.cf.total > 1
    emit: {id: rowKey, status: row.cf.status}
    to: {pubsub: {topic: out, orderBy: rowKey}}
`

func definition(t *testing.T, text string) map[string]string {
	t.Helper()
	p, err := pipeline.Parse([]byte(text), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scanjob.Find(p, "all", task.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return scanjob.Definition(s)
}

func TestTheDefinitionSaysWhichPartOfAScanHasChanged(t *testing.T) {
	before := definition(t, defined)
	for edit, want := range map[string]string{
		"version: 1\n->version: 1\n# a comment\n":                   "",
		"maxRows: 10->maxRows: 20":                                  "",
		"    when: row->    when: >-\n      row":                    "",
		"prefixes: [a]->prefixes: [b]":                              "rows",
		"rows: {prefixes: [a]}->limit: 3":                           "limit, rows",
		"versions: 1->versions: 2":                                  "cells",
		"total > 1->total > 2":                                      "emit",
		"id: rowKey,->key: rowKey,":                                 "emit",
		"{id: rowKey, status->{status":                              "emit",
		"topic: out,->topic: other,":                                "to",
		", orderBy: rowKey->":                                       "to",
		"total: int64->total: int64, extra: bytes":                  "the table's columns",
		"status: string->status: json":                              "the table's columns",
		"    table: orders->    onFailure: drop\n    table: orders": "",
	} {
		from, to, _ := strings.Cut(edit, "->")
		text := strings.Replace(defined, from, to, 1)
		if text == defined {
			t.Fatalf("%s changes nothing", edit)
		}
		if got := strings.Join(scanjob.Changed(before, definition(t, text)), ", "); got != want {
			t.Errorf("%s: changed %q, want %q", edit, got, want)
		}
	}
	if got := scanjob.Changed(nil, before); got != nil {
		t.Errorf("of a plan that kept none: changed %v", got)
	}
	if got := scanjob.Changed(map[string]string{"a part of a later version": "1"}, before); got != nil {
		t.Errorf("of a later version's plan: changed %v", got)
	}
}

func TestAPlanIsForOneTable(t *testing.T) {
	s := find(t, "plain", task.Options{})
	const name = "projects/my-project/instances/my-instance/tables/orders"
	if got := scanjob.TableOf(s); got != name {
		t.Errorf("table %s, want %s", got, name)
	}
	for planned, same := range map[string]bool{"": true, name: true, "projects/my-project/instances/other/tables/orders": false} {
		if err := scanjob.SameTable(planned, s); (err == nil) != same {
			t.Errorf("planned for %q: %v", planned, err)
		}
	}
}

// A plan of an earlier version is resumed by a later one: where this fails, users are told
// that they have changed a file that they have not.
func TestADefinitionIsHashedAsEarlierVersionsDid(t *testing.T) {
	want := map[string]string{
		"cells": "f0b234ea143156cf", "emit": "7ddd94d34161ab61", "limit": "f1ab6b1fa3e07be0", "rows": "fc23520c262d7116",
		"the table's columns": "09723841f45d5ffd", "to": "2c470838ef434ba6",
	}
	if got := definition(t, defined); !maps.Equal(got, want) {
		t.Errorf("%#v, want %#v", got, want)
	}
}
