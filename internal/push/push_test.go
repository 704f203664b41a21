package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

const envelope = `{"message":{"attributes":{"Origin":"SEA"},"data":"eyJhIjoxfQ==","messageId":"2070443601311540",` +
	`"message_id":"2070443601311540","orderingKey":"some-key","publishTime":"2021-02-26T19:13:55.749Z",` +
	`"publish_time":"2021-02-26T19:13:55.749Z"},"subscription":"projects/my-project/subscriptions/flights-events"}`

var message = push.Message{
	ID:           "2070443601311540",
	PublishTime:  time.Date(2021, 2, 26, 19, 13, 55, 749e6, time.UTC),
	OrderingKey:  "some-key",
	Attributes:   map[string]string{"Origin": "SEA"},
	Subscription: "projects/my-project/subscriptions/flights-events",
	Data:         []byte(`{"a":1}`),
}

func unwrappedMessage(data string, attrs map[string]string) push.Message {
	m := message
	m.Data, m.Attributes = []byte(data), attrs
	return m
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// post sends one request over HTTP to a handler and returns the response's
// status and what was delivered, nil if nothing was.
func post(t *testing.T, cfg push.Config, h http.Header, body io.Reader) (int, *push.Delivery) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	var got *push.Delivery
	srv := httptest.NewServer(push.Handler(cfg, func(_ context.Context, d *push.Delivery) error {
		got = d
		return nil
	}))
	defer srv.Close()
	r, err := http.NewRequest(http.MethodPost, srv.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || len(answer) > 0 {
		t.Errorf("answer has a body: %q, %v", answer, err)
	}
	return resp.StatusCode, got
}

func TestEveryShapeBecomesTheMessage(t *testing.T) {
	ceUnwrapped := unwrappedHeader()
	set(ceUnwrapped, "ce-id", "e1", "ce-source", "//shop", "ce-specversion", "1.0", "ce-type", "order.placed")
	noKey := unwrappedHeader()
	noKey.Del("x-goog-pubsub-ordering-key")
	noKey.Del("Origin")
	noKey.Del("Content-Type")
	withoutKey := unwrappedMessage("", nil)
	withoutKey.OrderingKey = ""

	for _, c := range []struct {
		name   string
		header http.Header
		body   string
		want   push.Message
	}{
		{"wrapped", jsonHeader(), envelope, message},
		{"wrapped without a content type", http.Header{}, envelope, message},
		{"Eventarc", eventarcHeader(), envelope, message},
		{"Eventarc, structured", structuredHeader(), structuredEvent(""), message},
		{"Eventarc, structured, in another order", header("Content-Type", "Application/CloudEvents+JSON"),
			`{"data":` + envelope + `,"message":{"data":"eA=="},"type":"t","id":"\u0031","ext":[1],"source":"s","subscription":"x","specversion":"1.0"} `, message},
		{"unwrapped", unwrappedHeader(), `{"a":1}`,
			unwrappedMessage(`{"a":1}`, map[string]string{"content-type": "application/json", "origin": "SEA"})},
		{"unwrapped payload that looks like an envelope", unwrappedHeader(), envelope,
			unwrappedMessage(envelope, map[string]string{"content-type": "application/json", "origin": "SEA"})},
		{"unwrapped CloudEvent", ceUnwrapped, `{"a":1}`,
			unwrappedMessage(`{"a":1}`, map[string]string{"content-type": "application/json", "origin": "SEA",
				"ce-id": "e1", "ce-source": "//shop", "ce-specversion": "1.0", "ce-type": "order.placed"})},
		{"unwrapped, empty, without attributes", noKey, ``, withoutKey},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chunked=%t", c.name, chunked), func(t *testing.T) {
				var body io.Reader = strings.NewReader(c.body)
				if chunked {
					body = io.MultiReader(body) // hides the length
				}
				status, d := post(t, push.Config{}, c.header, body)
				if status != http.StatusNoContent || d == nil || d.Malformed != nil {
					t.Fatalf("answered %d, delivered %+v", status, d)
				}
				if d.Size != int64(len(c.body)) {
					t.Errorf("size %d, want %d", d.Size, len(c.body))
				}
				if len(d.Message.Data) == 0 && len(c.want.Data) == 0 {
					d.Message.Data = c.want.Data
				}
				if !reflect.DeepEqual(d.Message, c.want) {
					t.Errorf("got %+v\nwant %+v", d.Message, c.want)
				}
			})
		}
	}
}

// double adds the header's value once more.
func double(h http.Header, name string) http.Header {
	h.Add(name, h.Get(name))
	return h
}

// structuredHeader is what comes with a CloudEvent in structured mode.
func structuredHeader() http.Header {
	h := jsonHeader()
	h.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	return h
}

// structuredEvent is a CloudEvent around the envelope, with more members.
func structuredEvent(more string) string {
	return `{"specversion":"1.0","id":"2070443601311540","source":"//pubsub.googleapis.com/projects/my-project/topics/flights-events",` +
		`"type":"google.cloud.pubsub.topic.v1.messagePublished","datacontenttype":"application/json","time":"2021-02-26T19:13:55.749Z"` + more + `,"data":` + envelope + `}`
}

// Attributes of one name reach an unwrapped delivery as one header, in any order.
func TestAttributesThatDifferInCaseOnlyAreNotGuessed(t *testing.T) {
	for range 50 {
		h := unwrappedHeader()
		h["Tenant"] = []string{"a", "b"}
		_, d := post(t, push.Config{}, h, strings.NewReader(`{}`))
		if d == nil || d.Malformed == nil || !strings.Contains(d.Malformed.Error(), "differ in case only") {
			t.Fatalf("delivered %+v", d)
		}
	}
	h := unwrappedHeader()
	h["Tenant"] = []string{"a", "a"}
	if _, d := post(t, push.Config{}, h, strings.NewReader(`{}`)); d == nil || d.Malformed != nil || d.Message.Attributes["tenant"] != "a" {
		t.Errorf("one value twice: %+v", d)
	}
}

// A delivery without a publish time is one as long as nothing reads the time.
func TestAPublishTimeMayBeAbsent(t *testing.T) {
	unwrapped := unwrappedHeader()
	unwrapped.Del("X-Goog-Pubsub-Publish-Time")
	for name, c := range map[string]struct {
		header http.Header
		body   string
	}{
		"wrapped":   {jsonHeader(), `{"message":{"data":"e30=","messageId":"1"},"subscription":"s"}`},
		"null":      {jsonHeader(), `{"message":{"data":"e30=","messageId":"1","publishTime":null},"subscription":"s"}`},
		"unwrapped": {unwrapped, `{}`},
	} {
		if _, d := post(t, push.Config{}, c.header, strings.NewReader(c.body)); d == nil || d.Malformed != nil || !d.Message.PublishTime.IsZero() || string(d.Message.Data) != "{}" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// What is of no known shape is handed on whole, as a rejected record, and the
// verdict on it is the receiver's.
func TestUnknownShapeIsARejectedRecordWithItsBody(t *testing.T) {
	without := func(h http.Header, name string) http.Header { h.Del(name); return h }
	with := func(h http.Header, name, value string) http.Header { h.Set(name, value); return h }
	for _, c := range []struct {
		name   string
		header http.Header
		body   string
		want   string
	}{
		{"a bare payload", jsonHeader(), `{"a":1}`, "no known shape"},
		{"an empty body", jsonHeader(), ``, "no known shape"},
		{"names in another case", jsonHeader(), strings.Replace(envelope, `"message"`, `"Message"`, 1), "no known shape"},
		{"a CloudEvent around something else", eventarcHeader(), `{"a":1}`, "no known shape"},
		{"a structured CloudEvent around something else", structuredHeader(), `{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":1}}`, "no known shape"},
		{"a structured CloudEvent around text", structuredHeader(), `{"specversion":"1.0","id":"1","source":"s","type":"t","data":"x"}`, "no known shape"},
		{"a structured CloudEvent without data", structuredHeader(), `{"specversion":"1.0","id":"1","source":"s","type":"t"}`, "no known shape"},
		{"a structured CloudEvent without a type", structuredHeader(), strings.Replace(structuredEvent(""), `"type"`, `"kind"`, 1), "CloudEvent attributes"},
		{"a structured CloudEvent with an id that is a number", structuredHeader(), strings.Replace(structuredEvent(""), `"id":"2070443601311540"`, `"id":7`, 1), "CloudEvent attributes"},
		{"a structured CloudEvent of another version", structuredHeader(), strings.Replace(structuredEvent(""), `"1.0"`, `"0.3"`, 1), "CloudEvent attributes"},
		{"a structured CloudEvent with two ids", structuredHeader(), structuredEvent(`,"id":"8"`), "stands twice"},
		{"a structured CloudEvent with data twice", structuredHeader(), structuredEvent(`,"data":{}`), "stands twice"},
		{"a structured CloudEvent and more", structuredHeader(), structuredEvent("") + "{}", "more text after"},
		{"a list for a structured CloudEvent", structuredHeader(), `[]`, "no JSON object"},
		{"a batch of CloudEvents", header("Content-Type", "application/cloudevents-batch+json"), `[` + structuredEvent("") + `]`, "no known shape"},
		{"a CloudEvent with two ids", double(eventarcHeader(), "Ce-Id"), envelope, "stands twice"},
		{"two message ids", double(unwrappedHeader(), "X-Goog-Pubsub-Message-Id"), envelope, "x-goog-pubsub-message-id stands twice"},
		{"two publish times", double(unwrappedHeader(), "X-Goog-Pubsub-Publish-Time"), envelope, "x-goog-pubsub-publish-time stands twice"},
		{"two ordering keys", double(unwrappedHeader(), "X-Goog-Pubsub-Ordering-Key"), envelope, "x-goog-pubsub-ordering-key stands twice"},
		{"two subscriptions", double(unwrappedHeader(), "X-Goog-Pubsub-Subscription-Name"), envelope, "x-goog-pubsub-subscription-name stands twice"},
		{"a CloudEvent without a source", without(eventarcHeader(), "Ce-Source"), envelope, "CloudEvent"},
		{"a CloudEvent without a type", without(eventarcHeader(), "Ce-Type"), envelope, "CloudEvent"},
		{"a CloudEvent without a version", without(eventarcHeader(), "Ce-Specversion"), envelope, "ce-specversion"},
		{"a CloudEvent of an unknown version", with(eventarcHeader(), "Ce-Specversion", "9"), envelope, "ce-specversion"},
		{"a CloudEvent with a bad time", with(eventarcHeader(), "Ce-Time", "noon"), envelope, "CloudEvent"},
		{"a CloudEvent with a bad extension", with(eventarcHeader(), "Ce-A-B", "x"), envelope, "CloudEvent"},
		{"a structured CloudEvent", with(eventarcHeader(), "Content-Type", "application/cloudevents+json"), envelope, "CloudEvent"},
		{"unwrapped with an empty id", with(unwrappedHeader(), "x-goog-pubsub-message-id", ""), `{"a":1}`, "message-id"},
		{"unwrapped with a bad time", with(unwrappedHeader(), "x-goog-pubsub-publish-time", "noon"), `{"a":1}`, "publish-time"},
		{"metadata without an id", without(unwrappedHeader(), "x-goog-pubsub-message-id"), `{"a":1}`, "no known shape"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, d := post(t, push.Config{}, c.header, strings.NewReader(c.body))
			if status != http.StatusNoContent || d == nil {
				t.Fatalf("answered %d, delivered %+v", status, d)
			}
			if d.Malformed == nil || !strings.Contains(d.Malformed.Error(), c.want) {
				t.Errorf("malformed: %v, want %q", d.Malformed, c.want)
			}
			if string(d.Message.Data) != c.body {
				t.Errorf("body %q, want %q", d.Message.Data, c.body)
			}
		})
	}
}

func TestBodyOverTheCapIsARejectedRecordWithoutItsBody(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	for _, h := range []http.Header{jsonHeader(), unwrappedHeader()} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(big)
			if chunked {
				body = io.MultiReader(body)
			}
			status, d := post(t, push.Config{Cap: 1 << 20, MaxRequestBytes: 1 << 20}, h, body)
			if status != http.StatusNoContent || d == nil {
				t.Fatalf("answered %d, delivered %+v", status, d)
			}
			if d.Malformed == nil || d.Message.Data != nil || d.Size <= 1<<20 {
				t.Errorf("malformed %v with %d bytes of data, size %d", d.Malformed, len(d.Message.Data), d.Size)
			}
			if unwrapped := h.Get("x-goog-pubsub-message-id"); d.Message.ID != unwrapped {
				t.Errorf("id %q, want %q", d.Message.ID, unwrapped)
			}
		}
	}
	exact := strings.Repeat("x", 1<<20)
	if _, d := post(t, push.Config{Cap: 1 << 20}, unwrappedHeader(), strings.NewReader(exact)); d.Malformed != nil {
		t.Errorf("a body of exactly the cap: %v", d.Malformed)
	}
}

func TestVerdictBecomesOneResponse(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict func() error
		want    int
	}{
		{"applied", func() error { return nil }, http.StatusNoContent},
		{"overloaded", func() error { return fmt.Errorf("writing: %w", push.ErrOverloaded) }, http.StatusTooManyRequests},
		{"failed", func() error { return errors.New("no") }, http.StatusServiceUnavailable},
		{"out of time", func() error { return context.DeadlineExceeded }, http.StatusServiceUnavailable},
		{"panic", func() error { panic("no") }, http.StatusInternalServerError},
		{"nil dereference", func() error { var d *push.Delivery; _ = d.Size; return nil }, http.StatusInternalServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := push.Handler(push.Config{Logger: quiet()}, func(context.Context, *push.Delivery) error { return c.verdict() })
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(envelope)))
			if w.Code != c.want || w.Body.Len() > 0 {
				t.Errorf("answered %d %q, want %d", w.Code, w.Body, c.want)
			}
		})
	}
}

func TestOtherMethodsAreNotDelivered(t *testing.T) {
	h := push.Handler(push.Config{Logger: quiet()}, func(context.Context, *push.Delivery) error {
		t.Error("delivered")
		return nil
	})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodHead, http.MethodDelete} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/", strings.NewReader(envelope)))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("%s answered %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestPanicIsLoggedWithItsPlaceAndWithoutUserData(t *testing.T) {
	var log bytes.Buffer
	cfg := push.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))}
	for _, text := range []any{"row SEA", errors.New("row SEA")} {
		h := push.Handler(cfg, func(context.Context, *push.Delivery) error { panic(text) })
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(envelope)))
	}
	if out := log.String(); strings.Contains(out, "SEA") || strings.Contains(out, "some-key") || strings.Contains(out, `"a"`) {
		t.Errorf("user data in the log: %s", out)
	}
	if !strings.Contains(log.String(), "TestPanicIsLogged") || !strings.Contains(log.String(), message.ID) {
		t.Errorf("log names neither place nor message: %s", &log)
	}
}

func TestMessageLogsSizesOnly(t *testing.T) {
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "message", message)
	for _, secret := range []string{"SEA", "some-key", `"a"`} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q in the log: %s", secret, &log)
		}
	}
	if !strings.Contains(log.String(), "dataBytes=7") {
		t.Errorf("no size in the log: %s", &log)
	}
}
