package push

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Bodies as Pub/Sub sends them. Each is a seed of the fuzz target too.
var envelopes = []struct {
	name string
	body string
	want Message
}{
	{
		name: "as documented, both spellings, ordering key",
		body: `{
  "message": {
      "attributes": {
          "Content-Type": "application/json"
      },
      "data": "eyJzdGF0dXMiOiAiSGVsbG8gdGhlcmUifQ==",
      "messageId": "2070443601311540",
      "message_id": "2070443601311540",
      "orderingKey": "some-key",
      "publishTime": "2021-02-26T19:13:55.749Z",
      "publish_time": "2021-02-26T19:13:55.749Z"
  },
 "subscription": "projects/myproject/subscriptions/mysubscription"
}`,
		want: Message{
			ID: "2070443601311540", PublishTime: time.Date(2021, 2, 26, 19, 13, 55, 749e6, time.UTC),
			OrderingKey: "some-key", Attributes: map[string]string{"Content-Type": "application/json"},
			Subscription: "projects/myproject/subscriptions/mysubscription",
			Data:         []byte(`{"status": "Hello there"}`),
		},
	},
	{
		name: "with a dead-letter policy",
		body: `{"deliveryAttempt":5,"message":{"data":"aGk=","messageId":"1","message_id":"1","publishTime":"2024-01-02T03:04:05.000000006Z","publish_time":"2024-01-02T03:04:05.000000006Z"},"subscription":"projects/p/subscriptions/s"}`,
		want: Message{
			ID: "1", PublishTime: time.Date(2024, 1, 2, 3, 4, 5, 6, time.UTC), DeliveryAttempt: 5,
			Subscription: "projects/p/subscriptions/s", Data: []byte("hi"),
		},
	},
	{
		name: "by Google's emulator: camel case only, HTML-safe escapes",
		body: `{"subscription":"projects/p/subscriptions/s","message":{"data":"aGk\u003d","messageId":"1","attributes":{"a":"\u003c\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"},"publishTime":"2024-01-02T03:04:05Z"}}`,
		want: Message{
			ID: "1", PublishTime: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
			Attributes:   map[string]string{"a": "<\"\\/\b\f\n\r\té😀"},
			Subscription: "projects/p/subscriptions/s", Data: []byte("hi"),
		},
	},
	{
		name: "by the attribute alone: no data",
		body: `{"message":{"attributes":{"é":"日本"},"message_id":"1","publish_time":"2024-01-02T04:04:05+01:00"},"subscription":""}`,
		want: Message{
			ID: "1", PublishTime: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
			Attributes: map[string]string{"é": "日本"},
		},
	},
	{
		name: "null is absence, unknown fields are skipped",
		body: ` {"message":{"data":null,"attributes":null,"orderingKey":null,"messageId":null,"message_id":"1","publishTime":null,"publish_time":"2024-01-02T03:04:05Z","new":[{},[],[1,-0.5e+3,"x",true,false,null],{"message":{}}]},"deliveryAttempt":null,"Message":{"messageId":"2"},"subscription":"s","zz":{"a":{"b":1E9}}}` + "\n",
		want: Message{ID: "1", PublishTime: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC), Subscription: "s"},
	},
	{
		name: "names may be escaped",
		body: `{"\u006dessage":{"messageId":"1","publishTime":"2024-01-02T03:04:05Z","d\u0061ta":"aGk="},"subscription":"s"}`,
		want: Message{ID: "1", PublishTime: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC), Subscription: "s", Data: []byte("hi")},
	},
}

func TestEnvelopeBecomesMessage(t *testing.T) {
	for _, c := range envelopes {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			if err := parseEnvelope([]byte(c.body), &m); err != nil {
				t.Fatal(err)
			}
			if len(m.Data) == 0 {
				m.Data = nil
			}
			if !reflect.DeepEqual(m, c.want) {
				t.Errorf("read %+v\nwant %+v", m, c.want)
			}
		})
	}
}

// minimal is an envelope around more text in its message.
func minimal(message string) string {
	return `{"message":{"messageId":"7","publishTime":"2024-01-02T03:04:05Z"` + message + `},"subscription":"s"}`
}

var malformed = []struct {
	name, body, want string
}{
	{"empty", ``, "no known shape"},
	{"not JSON", `plain text`, "no known shape"},
	{"an array", `[{"message":{},"subscription":"s"}]`, "no known shape"},
	{"no subscription", `{"message":{"messageId":"1","publishTime":"2024-01-02T03:04:05Z","data":"aGk="}}`, "no known shape"},
	{"no message", `{"subscription":"s","data":"aGk="}`, "no known shape"},
	{"another case", `{"Message":{"messageId":"1"},"Subscription":"s"}`, "no known shape"},
	{"message of a payload", `{"message":"hello","subscription":"s"}`, "no known shape"},
	{"subscription of a payload", `{"message":{"messageId":"1","publishTime":"2024-01-02T03:04:05Z"},"subscription":{"plan":"pro"}}`, "no known shape"},
	{"message null", `{"message":null,"subscription":"s"}`, "no known shape"},
	{"cut off", `{"message":{"messageId":"1"`, "object's end is expected"},
	{"cut off in a string", `{"message":{"messageId":"1`, "has no end"},
	{"cut off in an escape", `{"message":{"messageId":"\u00`, "has no end"},
	{"cut off in data", `{"message":{"data":"aGk=`, "has no end"},
	{"two values", minimal("") + `{}`, "more text after"},
	{"no id", `{"message":{"publishTime":"2024-01-02T03:04:05Z"},"subscription":"s"}`, "no messageId"},
	{"empty id", `{"message":{"messageId":"","publishTime":"2024-01-02T03:04:05Z"},"subscription":"s"}`, "no messageId"},
	{"id is a number", `{"message":{"messageId":1,"publishTime":"2024-01-02T03:04:05Z"},"subscription":"s"}`, "string is expected"},
	{"bad publish time", `{"message":{"messageId":"1","publishTime":"yesterday"},"subscription":"s"}`, "RFC 3339"},
	{"ids differ", minimal(`,"message_id":"8"`), "differ"},
	{"times differ", minimal(`,"publish_time":"2024-01-02T03:04:06Z"`), "differ"},
	{"message twice", `{"message":{},"message":{},"subscription":"s"}`, "twice"},
	{"data twice", minimal(`,"data":"aGk=","data":"aGk="`), "twice"},
	{"id twice", minimal(`,"messageId":"7"`), "twice"},
	{"attribute twice", minimal(`,"attributes":{"a":"1","a":"1"}`), "twice"},
	{"attempt twice", `{"deliveryAttempt":1,"deliveryAttempt":1}`, "twice"},
	{"attribute a number", minimal(`,"attributes":{"a":1}`), "string is expected"},
	{"attributes a list", minimal(`,"attributes":[]`), "object is expected"},
	{"data a number", minimal(`,"data":5`), "string is expected"},
	{"data not base64", minimal(`,"data":"{secret}"`), "base64"},
	{"data without padding", minimal(`,"data":"aGk"`), "base64"},
	{"data in the URL alphabet", minimal(`,"data":"-_-_"`), "base64"},
	{"data with an escaped line break", minimal(`,"data":"aGkh\naGkhaGk"`), "base64"},
	{"data with a raw line break", minimal(",\"data\":\"aGkh\naGkhaGk\""), "control character"},
	{"attempt a fraction", `{"deliveryAttempt":1.5}`, "whole number"},
	{"attempt below zero", `{"deliveryAttempt":-1}`, "whole number"},
	{"attempt a string", `{"deliveryAttempt":"1"}`, "whole number"},
	{"not UTF-8", minimal(",\"orderingKey\":\"\xff\""), "UTF-8"},
	{"not UTF-8 after an escape", minimal(",\"orderingKey\":\"\\n\xff\""), "UTF-8"},
	{"half a surrogate pair", minimal(`,"orderingKey":"\ud800"`), "surrogate"},
	{"two high surrogates", minimal(`,"orderingKey":"\ud800\ud800"`), "surrogate"},
	{"control character", minimal(",\"orderingKey\":\"\x01\""), "control character"},
	{"control character after an escape", minimal(",\"orderingKey\":\"\\n\x01\""), "control character"},
	{"unknown escape", minimal(`,"orderingKey":"\x41"`), "escape"},
	{"bad hexadecimal", minimal(`,"orderingKey":"\u00g0"`), "escape"},
	{"leading zero", minimal(`,"x":01`), "number"},
	{"lone minus", minimal(`,"x":-`), "number"},
	{"no fraction", minimal(`,"x":1.`), "number"},
	{"no exponent", minimal(`,"x":1e+`), "number"},
	{"unknown word", minimal(`,"x":nil`), "value is expected"},
	{"no colon", `{"message"}`, "colon"},
	{"comma at the end", `{"a":1,}`, "string is expected"},
	{"comma at an array's end", `{"a":[1,]}`, "value is expected"},
	{"array without commas", `{"a":[1 2]}`, "array's end"},
	{"deep nesting", `{"a":` + strings.Repeat("[", 100_000), "too deep"},
}

func TestMalformedEnvelopeIsToldWithoutQuotingIt(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			err := parseEnvelope([]byte(c.body), &m)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error quotes the body: %v", err)
			}
		})
	}
}

func TestBadDataLeavesTheRestOfTheMessageReadable(t *testing.T) {
	var m Message
	body := `{"message":{"data":"??","messageId":"7","publishTime":"2024-01-02T03:04:05Z"},"subscription":"s"}`
	if err := parseEnvelope([]byte(body), &m); err == nil {
		t.Fatal("accepted")
	}
	if m.ID != "7" || m.Subscription != "s" || m.PublishTime.IsZero() {
		t.Errorf("lost what a dead letter needs: %+v", m)
	}
}

// Whatever encoding/json writes is read back equal, in any order of fields and
// with any white space.
func TestEveryEnvelopeIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Message{
			ID:              rapid.StringN(1, 20, -1).Draw(t, "id"),
			PublishTime:     time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
			OrderingKey:     rapid.String().Draw(t, "key"),
			Subscription:    rapid.String().Draw(t, "sub"),
			DeliveryAttempt: rapid.IntRange(0, 100).Draw(t, "attempt"),
			Attributes:      rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "attrs"),
			Data:            rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		body, err := json.Marshal(map[string]any{
			"deliveryAttempt": want.DeliveryAttempt,
			"subscription":    want.Subscription,
			"message": map[string]any{
				"attributes": want.Attributes, "data": want.Data, "messageId": want.ID, "message_id": want.ID,
				"orderingKey": want.OrderingKey, "publishTime": want.PublishTime, "publish_time": want.PublishTime,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indent") {
			var out bytes.Buffer
			if err := json.Indent(&out, body, "\t", "\r\n "); err != nil {
				t.Fatal(err)
			}
			body = out.Bytes()
		}
		var got Message
		if err := parseEnvelope(body, &got); err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		if !maps.Equal(got.Attributes, want.Attributes) || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("read %+v, want %+v", got, want)
		}
		got.Attributes, got.Data = want.Attributes, want.Data
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v, want %+v", got, want)
		}
	})
}

// FuzzEnvelope holds the scanner to encoding/json: what the scanner accepts is
// valid JSON, and its fields are those that encoding/json finds by exact name.
func FuzzEnvelope(f *testing.F) {
	for _, c := range envelopes {
		f.Add([]byte(c.body))
	}
	for _, c := range malformed {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var m Message
		err := parseEnvelope(body, &m)
		if err != nil {
			return
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("accepted what is not JSON: %q", body)
		}
		var outer, inner map[string]json.RawMessage
		if err := json.Unmarshal(body, &outer); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(outer["message"], &inner); err != nil {
			t.Fatal(err)
		}
		checkText(t, "subscription", outer["subscription"], m.Subscription)
		checkText(t, "orderingKey", inner["orderingKey"], m.OrderingKey)
		var id string
		if json.Unmarshal(inner["messageId"], &id) != nil || id == "" {
			checkText(t, "message_id", inner["message_id"], m.ID)
		} else if id != m.ID {
			t.Fatalf("id %q, want %q", m.ID, id)
		}
		var data string
		if raw, ok := inner["data"]; ok {
			if err := json.Unmarshal(raw, &data); err != nil {
				t.Fatal(err)
			}
		}
		want, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !bytes.Equal(want, m.Data) {
			t.Fatalf("data %q, want %q (%v)", m.Data, want, err)
		}
		var attrs map[string]string
		if raw, ok := inner["attributes"]; ok {
			if err := json.Unmarshal(raw, &attrs); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(attrs, m.Attributes) {
			t.Fatalf("attributes %v, want %v", m.Attributes, attrs)
		}
	})
}

func checkText(t *testing.T, name string, raw json.RawMessage, got string) {
	t.Helper()
	var want string
	if raw != nil {
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Fatalf("%s %q, want %q", name, got, want)
	}
}
