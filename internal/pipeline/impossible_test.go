package pipeline

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// rig is a file with room for one more line in each of its parts.
const rig = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
#top
tables:
  orders:
    #table
    families:
      cf: {gc: {maxVersions: 1}}
      plain: {}
      totals: {aggregate: sum}
      seen: {gc: {maxAge: 1000h}}
  copy: {families: {cf: {}, plain: {}, state: {}, totals: {}}}
  state: {families: {state: {}}}
  #tables
write:
  #write
  mappings:
    - name: orders
      table: orders
      rowKey: event.id
      timestamp: timestamp(event.at)
      #mapping
      mutations:
        - set: {cf: {status: event.status}}
        #mutations
scans:
  all:
    table: orders
    #scan
    to: {log: {}}
  #scans
changes:
  feed:
    table: orders
    appProfile: single
    #change
    to: {log: {}}
  #changes
tests:
  - name: first
    message: {data: {}}
    expect: {rows: []}
  #tests
`

// each case puts text where #part stands, and wants one fault that says want.
func TestImpossibleCombinationsAreRefused(t *testing.T) {
	for _, c := range []struct{ part, text, want string }{
		{"top", `credentialsFile: ""`, "an empty path"},
		{"tables", `t: {id: fixed, idFrom: event.t, idMatches: t-.*, families: {cf: {}}}`, "either fixed or computed"},
		{"table", `idMatches: t-.*`, "stands without idFrom"},
		{"table", `key: json`, "no encoding for a row key"},
		{"tables", `t: {idFrom: event.t, idMatches: '', families: {cf: {}}}`, "an empty pattern"},
		{"table", `project: Projects/x`, "is no project id"},
		{"tables", `wide: {families: {cf: {columns: {` + strings.Repeat("q", 16385) + `: bytes}}}}`, "a qualifier of 16385 bytes"},
		{"tables", `agg: {families: {t: {aggregate: max, columns: {a: int64}}}}`, "declares no columns"},
		{"tables", `gc: {families: {t: {gc: {union: []}}}}`, "an empty list"},
		{"tables", `enc: {families: {t: {columns: {a: [int64]}}}}`, "takes an encoding such as int64, not a list"},
		{"tables", `viewed: {authorizedView: v, create: if-needed, families: {cf: {}}}`, "stands beside create: if-needed"},
		{"tables", `viewed: {authorizedView: -v, families: {cf: {}}}`, "is no authorized view id"},
		{"mutations", `- deleteRow: false`, "takes true"},
		{"mutations", `- deleteFamilies: []`, "an empty list"},
		{"mutations", `- deleteFamilies: [nope]`, `declares no family "nope"`},
		{"mutations", `- deleteFamilies: nope`, "takes a list, not text"},
		{"mutations", `- deleteColumns: {cf: []}`, "an empty list"},
		{"mutations", `- deleteColumns: {cg: [a]}`, `did you mean "cf"?`},
		{"mutations", `- deleteColumns: {cf: [{base64: 5}]}`, "takes text, not a number"},
		{"mutations", `- deleteColumns: {cf: [{hex: aa}]}`, `takes text or {base64: "…"}`},
		{"mutations", `- {deleteColumns: {cf: [a]}, versions: all, from: event.x}`, "stands beside from or to"},
		{"mutations", `- {deleteColumns: {cf: [a]}, to: event.x, tombstone: true}`, "stands beside from or to"},
		{"mutations", `- {deleteColumns: {totals: [a]}, tombstone: true}`, "no null can be written"},
		{"mutations", `- {set: {cf: {a: "1"}}, from: event.x}`, "goes with deleteColumns only"},
		{"mutations", `- {set: {cf: {a: "1"}}, tombstone: true}`, "goes with deleteColumns only"},
		{"mutations", `- {merge: {cf: {a: "1"}}}`, "is no aggregate"},
		{"mutations", `- {set: {cf: {` + strings.Repeat("q", 16385) + `: "1"}}}`, "a qualifier of 16385 bytes"},
		{"mutations", `- {set: {cf: {}}}`, "an empty mapping"},
		{"mutations", `- {set: {cf: event.cf}}`, "takes a mapping, not text"},
		{"mutations", `- {}`, "says no operation"},
		{"mapping", `dedupeId: event.x`, "stands without dedupe"},
		{"mapping", `markerFamily: seen`, "stands without dedupe: marker"},
		{"mapping", "dedupe: marker\n      markerFamily: nope", `declares no family "nope"`},
		{"mapping", "dedupe: marker\n      markerFamily: totals", "no marker can be written"},
		{"write", "onUnmatched: drop", `"drop" is not known here`},
		{"write", "repair: {maxBackoff: 100ms}", "the first pause, 500ms, is longer than the longest, 100ms"},
		{"write", "limits: {consecutiveRejections: 0}", "write 1 to 1000000"},
		{"write", "limits: {consecutiveRejections: never}", "takes a whole number such as 100"},
		{"write", "limits: {batch: [1]}", "takes a mapping, not a list"},
		{"scan", "rows: {}", "says neither prefixes nor ranges"},
		{"scan", "rows: {ranges: [{}]}", "says neither start nor end"},
		{"scan", `rows: {prefixes: [""]}`, "an empty key"},
		{"scan", `rows: {ranges: [{start: ""}]}`, "an empty key"},
		{"scan", `rows: {prefixes: [` + strings.Repeat("k", 4097) + `]}`, "a key of 4097 bytes"},
		{"scan", `rows: {encoding: base64, prefixes: [{base64: YQ==}]}`, "as base64 twice"},
		{"scan", `cells: {keysOnly: true, versions: 1}`, "which reads no cells"},
		{"scan", `cells: {keysOnly: true, families: [cf]}`, "it reads no cells"},
		{"scan", `cells: {keysOnly: true, filter: 'x: 1'}`, "say all of it in the filter"},
		{"scan", `cells: {versions: 1, filter: 'x: 1'}`, "say all of it in the filter"},
		{"scan", `cells: {families: [cf], filter: 'x: 1'}`, "say all of it in the filter"},
		{"scan", `cells: {families: [nope]}`, `declares no family "nope"`},
		{"scan", `cells: {columns: {nope: [a]}}`, `declares no family "nope"`},
		{"scan", `cells: {since: "2026-08-01T00:00:00Z", until: "2026-08-01T00:00:00Z"}`, "until must come after since"},
		{"scan", `cells: {since: "2026-08-01T00:00:00.0001Z"}`, "finer than a millisecond"},
		{"scan", `cells: {since: "1969-08-01T00:00:00Z"}`, "before 1970"},
		{"scan", `cells: {since: "2026-08-01"}`, "is no time"},
		{"scan", `cells: {filter: ' '}`, "an empty filter"},
		{"scan", `cells: {filter: 'a: "b'}`, "a quoted text does not end"},
		{"scan", `cells: {filter: 'a}'}`, "a bracket closes"},
		{"scan", `cells: {filter: '` + strings.Repeat("x", 20481) + `'}`, "more than 20,480 bytes"},
		{"scan", `emit: {}`, "an empty mapping"},
		{"scan", `emit: {a-b: rowKey}`, "is no field name"},
		{"scan", `limit: 0`, "write at least 1"},
		{"scan", `schedule: {cron: "0 3 * * *", timeZone: Local}`, "is no time zone"},
		{"scans", `x: {table: orders, to: {}}`, "says no sink"},
		{"scans", `Big: {table: orders, to: {log: {}}}`, "is no name"},
		{"scans", `x: {table: nope, to: {log: {}}}`, `no table "nope"`},
		{"scans", `x: {table: orders, to: {pubsub: {topic: goog-topic}}}`, "starts with goog"},
		{"scans", `x: {table: orders, to: {pubsub: {topic: t-x, attributes: {google: rowKey}}}}`, "starts with goog"},
		{"scans", `x: {table: orders, to: {pubsub: {topic: t-x, cdc: true}}}`, "needs selectedCell"},
		{"scans", `x: {table: orders, to: {http: {url: "ftp://example.com"}}}`, "is no URL"},
		{"scans", `x: {table: orders, to: {http: {url: "http://exa%zzmple.com"}}}`, "is no URL"},
		{"scans", `x: {table: orders, to: {http: {url: "https://e.com", headers: {Authorization: x}}}}`, "the sink sets this header itself"},
		{"scans", `x: {table: orders, to: {http: {url: "https://e.com", path: rowKey, batch: 2}}}`, "stands beside batch"},
		{"scans", `x: {table: orders, to: {http: {url: "https://e.com?a", path: rowKey}}}`, "with a query"},
		{"scans", `x: {table: orders, to: {http: {url: "https://e.com", auth: basic}}}`, `"basic" is not known here`},
		{"scans", `x: {table: orders, to: {http: {url: "https://e.com", auth: {bearer: a, hmac: b}}}}`, "says bearer and hmac"},
		{"scans", `x: {table: orders, to: {tasks: {queue: q, location: us-central1, url: "https://exa mple.com"}}}`, "is no URL"},
		{"scans", `x: {table: orders, to: {http: {url: "http://e.com", auth: oidc}}}`, "in the clear"},
		{"scans", `x: {table: orders, to: {tasks: {queue: q, location: us-central1, url: "http://e.com/x", serviceAccount: sa}}}`, "in the clear"},
		{"tests", `- {name: "", message: {data: {}}, expect: {rows: []}}`, "say what the test shows"},
		{"tests", `- {name: x, message: {data: {}}, expect: {rejected: [{error: ""}]}}`, "the test cannot fail"},
		{"scans", `x: {table: orders, emit: {a: rowKey}, cells: {families: [cf]}, to: {bigtable: {table: copy}}}`, "does not go with a bigtable sink"},
		{"scans", `x: {table: orders, forEach: "[1]", cells: {families: [cf]}, to: {bigtable: {table: copy}}}`, "does not go with a bigtable sink"},
		{"scans", `x: {table: orders, cells: {keysOnly: true}, to: {bigtable: {table: copy}}}`, "no cells to copy"},
		{"scans", `x: {table: copy, cells: {columns: {totals: [a]}}, to: {bigtable: {table: orders}}}`, "into which no cell can be copied"},
		{"change", `start: "2030-01-01T00:00:00Z"` + "\n    end: \"2029-01-01T00:00:00Z\"", "end must come after start"},
		{"change", `start: 2h`, "is none of what it takes"},
		{"change", `start: fail`, "is none of what it takes"},
		{"change", `onExpired: -2h`, "is none of what it takes"},
		{"change", `window: 90s`, "write 1s to 85s"},
		{"change", `filter: {families: {include: ["("]}}`, "missing closing )"},
		{"change", `filter: {families: {include: [")("]}}`, "unexpected )"},
		{"change", `selectedCell: {family: totals, qualifier: a, cluster: c-a, format: json}`, "whose cells are not set"},
		{"change", `selectedCell: {family: plain, qualifier: a, cluster: c-a, format: json}` + "\n    filter: {dropEmpty: true}", "stands beside selectedCell"},
		{"change", `selectedCell: {family: plain, qualifier: a, cluster: c-a, format: json}` + "\n    emit: {a: rowKey}", "stands beside selectedCell"},
		{"change", `selectedCell: {family: plain, qualifier: a, cluster: c-a, format: json}` + "\n    when: 'true'", "stands beside selectedCell"},
		{"change", `selectedCell: {family: plain, cluster: c-a, format: json}`, "selectedCell.qualifier: is missing"},
		{"changes", `x: {table: orders, appProfile: p, maxRecordBytes: 10MiB, to: {pubsub: {topic: t-x}}}`, "10,000,000 bytes"},
		{"changes", `x: {table: orders, appProfile: p, selectedCell: {family: plain, qualifier: a, cluster: c-a, format: json}, filter: {families: {exclude: [totals, seen]}}, to: {log: {}}}`, "stands beside selectedCell"},
		{"changes", `x: {table: state, appProfile: p, selectedCell: {family: state, qualifier: a, cluster: c-a, format: json}, to: {bigtable: {table: copy}}}`, "does not go with selectedCell"},
		{"tests", `- {name: first, message: {data: {}}, expect: {rows: []}}`, "is the name of the test on line"},
		{"tests", `- {name: x, message: {data: {}, raw: ""}, expect: {rows: []}}`, "says data and raw"},
		{"tests", `- {name: x, message: {data: {}}, expect: {records: []}}`, "records come of a row or change"},
		{"tests", `- {name: x, row: {scan: all, key: a}, expect: {rows: []}}`, "rows and skipped come of a message"},
		{"tests", `- {name: x, row: {scan: al, key: a}, expect: {records: []}}`, `did you mean "all"?`},
		{"tests", `- {name: x, row: {scan: all, key: a, cells: {nope: {a: 1}}}, expect: {records: []}}`, `declares no family "nope"`},
		{"tests", `- {name: x, change: {changes: fed, rowKey: a}, expect: {records: []}}`, `did you mean "feed"?`},
		{"tests", `- {name: x, change: {changes: feed, rowKey: a, entries: [{kind: SET_CELL, family: cf, timestamp: "2026-08-01T00:00:00Z", value: 1}]}, expect: {records: []}}`, "entries[0].qualifier: is missing: SET_CELL has one"},
		{"tests", `- {name: x, change: {changes: feed, rowKey: a, entries: [{kind: DELETE_FAMILY, family: cf, qualifier: a}]}, expect: {records: []}}`, "does not go with DELETE_FAMILY"},
		{"tests", `- {name: x, change: {changes: feed, rowKey: a, entries: [{kind: DELETE_FAMILY, family: cf, range: {}}]}, expect: {records: []}}`, "goes with DELETE_CELLS only"},
		{"tests", `- {name: x, message: {data: {}}, expect: {skipped: true, rows: []}}`, "what is skipped makes neither"},
		{"tests", `- {name: x, message: {data: {}}, expect: {rows: [{table: nope, rowKey: a, mutations: [{deleteRow: true}]}]}}`, `no table "nope"`},
		{"tests", `- {name: x, message: {data: {}}, expect: {rows: [{table: orders, rowKey: a, mutations: [{deleteRow: false}]}]}}`, "takes true"},
		{"tests", `- {name: x, message: {data: {}}, expect: {rows: [{table: orders, rowKey: a, mutations: [{set: {totals: {a: 1}}}]}]}}`, "use add or merge"},
		{"tests", `- {name: x, message: {data: {}}, expect: {rows: [{table: orders, rowKey: a, mutations: [{set: {cf: {a: 1}}, versions: all}]}]}}`, "goes with deleteColumns only"},
		{"tests", `- {name: x, message: {data: {a: }}, expect: {rows: []}}`, "an empty value: write null"},
		{"tests", `- {name: x, message: {data: {a: [{b: +1}]}}, expect: {rows: []}}`, "data.a[0].b: +1 is no number of JSON"},
		{"tests", `- {name: x, message: {data: .inf}, expect: {rows: []}}`, "is no number of JSON"},
	} {
		hole := "#" + c.part + "\n"
		if strings.Count(rig, hole) != 1 {
			t.Fatalf("%q is not in the rig once", hole)
		}
		text := strings.Replace(rig, hole, c.text+"\n", 1)
		_, err := Parse([]byte(text), Options{File: "f"})
		errs, _ := err.(Errors)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%.100s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	parseText(t, rig)
}

func TestASecondDeliveryMustNotDeleteWhatItsTokenKeepsFromComingBack(t *testing.T) {
	for _, c := range []struct{ dedupe, mutation, want string }{
		{"dedupe: window", "deleteRow: true", `deletes from family "totals"`},
		{"dedupe: window", "deleteColumns: {totals: [a]}", `deletes from family "totals"`},
		{"dedupe: window", "deleteColumns: {cf: [a]}", ""},
		{"dedupe: marker\n      markerFamily: seen", "deleteRow: true", `deletes from family "seen"`},
		{"dedupe: marker\n      markerFamily: seen", "deleteColumns: {seen: [a]}", `deletes from family "seen"`},
		{"dedupe: marker\n      markerFamily: seen", "deleteFamilies: [cf, totals]", ""},
	} {
		text := strings.Replace(rig, "#mapping\n", c.dedupe+"\n", 1)
		text = strings.Replace(text, "#mutations\n", "- add: {totals: {a: \"1\"}}\n        - "+c.mutation+"\n", 1)
		_, err := Parse([]byte(text), Options{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v", c.dedupe, c.mutation, err)
		}
	}
}

func TestTheMutationFormatHasNoMappings(t *testing.T) {
	top, _, _ := strings.Cut(minimal, "write:")
	if w := parseText(t, top+"write: {format: mutation, onFailure: drop}\n").Write; w.Format != FormatMutation || w.Mappings != nil {
		t.Errorf("got %+v", w)
	}
	for text, want := range map[string]string{
		"write: {format: mutation, onUnmatched: skip}\n": "there are no mappings",
		"write: {format: json}\n":                        "write.mappings: is missing",
		"write: {mappings: []}\n":                        "an empty list",
		"write: []\n":                                    "takes a mapping, not a list",
		"scan: {}\n":                                     "unknown field",
		"credentialsFile: k.json\n":                      "the file does nothing",
	} {
		if got := faultsOf(t, top+text); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestAliasesAreRefused(t *testing.T) {
	text := strings.Replace(minimal, "rowKey: event.id", "rowKey: *key", 1)
	if got := faultsOf(t, text); !strings.Contains(got[0], "alias") && !strings.Contains(got[0], "anchor") {
		t.Errorf("got %v", got)
	}
}

func TestEachFaultIsFoundByItsType(t *testing.T) {
	_, err := Parse([]byte("name: 7\n"), Options{File: "f"})
	var one *Error
	if !errors.As(err, &one) || one.Place == "" || one.Pos.File != "f" {
		t.Errorf("got %+v of %v", one, err)
	}
}

func TestSinksAreNamedAsInTheFile(t *testing.T) {
	var got []string
	for _, s := range parseFile(t, "testdata/every.yaml").Scans {
		got = append(got, s.To.Kind())
	}
	if want := []string{"pubsub", "http", "http", "tasks", "gcs", "bigtable", "log"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if kind := (Sink{}).Kind(); kind != "" {
		t.Errorf("no sink is %q", kind)
	}
}
