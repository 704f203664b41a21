package deadletter

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// What a message had comes back, whatever it is, in a message that Pub/Sub takes.
func TestALetterKeepsAllOfItsMessage(t *testing.T) {
	long := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.String(), func(s string) string { return strings.Repeat(s, 50) }))
	rapid.Check(t, func(t *rapid.T) {
		o := &Origin{
			Attributes:  rapid.MapOfN(rapid.StringN(0, 100, 256), long, 0, 20).Draw(t, "attributes"),
			OrderingKey: long.Draw(t, "key"), Subscription: rapid.String().Draw(t, "subscription"),
			Place: rapid.IntRange(0, 1e6).Draw(t, "place"), Whole: rapid.Bool().Draw(t, "whole"),
		}
		l := Letter{Kind: KindRecord, Table: "t", Mapping: "m", Error: "e", Time: publishTime, MessageID: "1", PublishTime: publishTime, Origin: o}
		if err := l.Check(); err != nil {
			t.Skip(err)
		}
		data, attributes := l.Encode()
		if err := taken(data, attributes); err != nil {
			t.Fatal(err)
		}
		back, err := Decode(data, attributes)
		if err != nil {
			t.Fatal(err)
		}
		b := back.Origin
		if b == nil || !maps.Equal(b.Attributes, o.Attributes) || b.OrderingKey != o.OrderingKey || b.Subscription != o.Subscription || b.Place != o.Place || b.Whole != o.Whole {
			t.Fatalf("%+v became %+v", o, b)
		}
	})
}

// taken is what Pub/Sub takes: its documented limits, written down once more.
func taken(data []byte, attributes map[string]string) error {
	size := len(data)
	for name, value := range attributes {
		size += len(name) + len(value)
		if len(name) > 256 || len(value) > 1024 || !utf8.ValidString(value) {
			return fmt.Errorf("attribute %s of %d bytes", name, len(value))
		}
	}
	if len(attributes) > 100 || size > 10_000_000 {
		return fmt.Errorf("%d attributes, %d bytes", len(attributes), size)
	}
	return nil
}

// A message of Pub/Sub's own largest size fails with a letter that is as large.
func TestALetterTooLargeIsCutToWhatReplayNeeds(t *testing.T) {
	attributes := func(n, bytes int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("a", i)] = strings.Repeat("x", bytes)
		}
		return out
	}
	letter := func(kind Kind, data int, attributes map[string]string) Letter {
		return Letter{
			Kind: kind, Table: string(orders), Mapping: "m", Error: strings.Repeat("e", 1024), Time: publishTime, MessageID: "17",
			PublishTime: publishTime, Data: make([]byte, data), Origin: &Origin{Attributes: attributes, Place: 7},
		}
	}
	for _, c := range []struct {
		name                 string
		letter               Letter
		error, table, origin bool // are kept
		want                 string
	}{
		{"small", letter(KindRecord, 10, attributes(3, 10)), true, true, true, ""},
		{"large attributes", letter(KindRecord, 10, attributes(70, 1024)), true, true, true, ""},
		{"large data", letter(KindRecord, 9_997_000, attributes(1, 10)), false, false, true, ""},
		{"large data of an entry", letter(KindEntry, 9_000_000, attributes(70, 1024)), true, true, true, ""},
		{"large attributes of an entry", letter(KindEntry, 10, attributes(100, 1024)), false, true, false, ""},
		{"all of Pub/Sub's", letter(KindRecord, 10_000_000, nil), false, false, true, "it has 10000"},
		{"too many attributes", letter(KindRecord, 10, attributes(100, 1024)), false, false, false, "its message's attributes take more than"},
		{"an attribute with a name that is no text", letter(KindRecord, 10, map[string]string{"\xff": "x"}), false, false, false, "a name that is not text"},
		{"an id that is no text", Letter{Kind: KindRecord, MessageID: "\xff"}, true, false, false, "its attribute messageId is not text"},
		{"a long id", Letter{Kind: KindRecord, MessageID: strings.Repeat("1", 1025)}, true, false, false, "its attribute messageId has 1025 bytes"},
	} {
		err := c.letter.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		data, all := c.letter.Encode()
		if err := taken(data, all); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		back, err := Decode(data, all)
		if err != nil || len(back.Data) != len(c.letter.Data) || back.MessageID != "17" || back.Mapping != "m" || !back.PublishTime.Equal(publishTime) ||
			(back.Error != "") != c.error || (back.Table != "") != c.table || (back.Origin != nil) != c.origin {
			t.Errorf("%s: %v, %+v", c.name, err, back.Origin)
		}
		if back.Origin != nil && (back.Origin.Place != 7 || !maps.Equal(back.Origin.Attributes, c.letter.Origin.Attributes)) {
			t.Errorf("%s: %+v", c.name, back.Origin)
		}
	}
}
