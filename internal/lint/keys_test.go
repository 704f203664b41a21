package lint

import (
	"fmt"
	"strings"
	"testing"
)

const keyRig = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  t:
    key: %s
    families: {cf: {}}
write:
  mappings:
    - name: m
      table: t
      rowKey: %s
      mutations:
        - set: {cf: {a: raw}}
`

func TestKeysThatMakeHotSpotsAreTold(t *testing.T) {
	for _, c := range []struct{ key, rowKey, want string }{
		// what begins with what tells neighbours apart
		{"string", `key("order", event.tenant, event.id)`, ""},
		{"string", `event.counter`, ""},
		{"string", `key(event.id, event.at)`, ""},
		{"string", `event.id + utcDate(timestamp(event.at))`, ""},
		{"string", `key(salt(event.id, 8), utcDate(timestamp(event.at)), event.id)`, ""},
		{"string", `hex(hash(event.at))`, ""},
		{"string", `event.format`, ""},
		{"string", `event.?lat.orValue("x")`, ""},
		{"string", `[event.id, event.ts].join("/")`, ""},
		{"bytes", `hash(event.seq)`, ""},
		{"string", `event.kind == "at" ? event.id : event.name`, ""},
		// times
		{"string", `key(utcDate(timestamp(event.at)), event.id)`, "warning 5 begins with a time"},
		{"string", `key("a", "b", utcDate(timestamp(event.at)), event.id)`, "warning 15 begins with a time"},
		{"string", `reverse(timestamp(event.at)) + event.id`, "warning 1 begins with a time"},
		{"string", `string(bucket(timestamp(event.at), duration("1h")))`, "warning 8 begins with a time"},
		{"string", `string(message.publishTime)`, "warning 8 begins with a time"},
		{"string", `string(timestamp(event.x).getFullYear())`, "warning 8 begins with a time"},
		{"timestamp", `timestamp(event.x)`, "warning 1 begins with a time"},
		{"string", `key(event.at, event.id)`, "warning 5 begins with event.at, by its name a time"},
		{"string", `key("x", event.order["created_at"])`, "warning 10 begins with event.order.created_at, by its name a time"},
		{"string", `event.?eventTimeMs.orValue("0")`, "warning 1 begins with event.eventTimeMs, by its name a time"},
		{"string", `event.date.replace("/", "-") + event.id`, "warning 1 begins with event.date, by its name a time"},
		{"string", `event.day.substring(0, 4) + event.id`, "warning 1 begins with event.day, by its name a time"},
		{"string", `["x", event.orderDate, event.id].join("#")`, "warning 7 begins with event.orderDate, by its name a time"},
		{"string", `event.old ? event.id : event.ts`, "warning 24 begins with event.ts, by its name a time"},
		{"string", `(event.eu ? "eu-" : "us-") + event.ts`, "warning 30 begins with event.ts, by its name a time"},
		// sequences
		{"string", `message.id`, "note 1 begins with message.id, of whose order nothing is promised"},
		{"string", `key("m", event.seq)`, "warning 10 begins with event.seq, by its name a sequence"},
		{"string", `event.sequenceNumber`, "warning 1 begins with event.sequenceNumber, by its name a sequence"},
		{"string", `pad(int(event.n), 12)`, "note 1 begins with a padded number"},
		{"int64", `int(event.n)`, "note 1 is a number"},
		{"int64", `event.n`, "note 1 is a number"},
		// constants
		{"string", `"all"`, "warning 1 is constant"},
		{"string", `key("a", salt("b", 4))`, "warning 1 is constant"},
		{"int64", `7`, "warning 1 is constant"},
	} {
		_, findings := load(t, fmt.Sprintf(keyRig, c.key, "'"+c.rowKey+"'"))
		var got []string
		for _, f := range findings {
			if f.Rule == RuleHotKey {
				// columns count from the expression's first character
				got = append(got, fmt.Sprintf("%s %d %s", f.Severity, f.Pos.Column-15, f.Message))
			}
		}
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s key %s: got %q, want %q", c.key, c.rowKey, got, c.want)
		}
	}
}

func TestDoublesInKeysAreTold(t *testing.T) {
	for _, c := range []struct {
		key, rowKey string
		columns     []int
	}{
		{"string", `key("a", string(double(event.x)))`, []int{17}},
		{"string", `string(event.a / 2.0) + string(1.5)`, []int{8, 32}},
		{"string", `string(math.round(event.x))`, []int{8}},
		{"string", `event.x > 1.5 ? event.a : string(event.y * 2.0)`, []int{34}},
		{"string", `[string(double(event.x))].join("#")`, []int{9}},
		{"string", `event.x > 1.5 ? event.a : event.b`, nil},
		{"string", `key("a", int(double(event.x)))`, nil},
		{"string", `string(int(math.round(event.x)))`, nil},
		{"string", `string(event.x)`, nil},
		{"float64", `event.x`, []int{1}},
		{"float64", `event.x * 2.0`, []int{1, 1}},
	} {
		_, findings := load(t, fmt.Sprintf(keyRig, c.key, "'"+c.rowKey+"'"))
		var got []int
		for _, f := range findings {
			if f.Rule == RuleDouble {
				got = append(got, f.Pos.Column-15)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.columns) {
			t.Errorf("%s key %s: doubles at %v, want %v", c.key, c.rowKey, got, c.columns)
		}
	}
}
