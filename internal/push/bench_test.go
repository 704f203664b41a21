package push_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// reusable is a response that can be written to over and over.
type reusable struct {
	header http.Header
	status int
}

func (w *reusable) Header() http.Header         { return w.header }
func (w *reusable) Write(b []byte) (int, error) { return len(b), nil }
func (w *reusable) WriteHeader(status int)      { w.status = status }

// decodeOnly is the least that a hand-written function does with a push request.
func decodeOnly(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Message struct {
			Data      []byte
			MessageID string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Message.Data) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// BenchmarkDelivery compares the handler, per shape and size, with one that
// only decodes the envelope with encoding/json.
func BenchmarkDelivery(b *testing.B) {
	handler := push.Handler(push.Config{
		MaxRequestBytes: 96 << 20, Budget: 270 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}, func(_ context.Context, d *push.Delivery) error { return d.Malformed })

	for _, size := range []int{200, 100_000, 10_000_000} {
		payload := []byte(strings.Repeat(`{"flight":"AA12"}`, size/17+1))[:size]
		wrapped := fmt.Appendf(nil, `{"message":{"attributes":{"origin":"SEA"},"data":%q,"messageId":"2070443601311540",`+
			`"message_id":"2070443601311540","publishTime":"2021-02-26T19:13:55.749Z",`+
			`"publish_time":"2021-02-26T19:13:55.749Z"},"subscription":"projects/my-project/subscriptions/flights-events"}`,
			base64.StdEncoding.EncodeToString(payload))
		for _, c := range []struct {
			name    string
			handler http.Handler
			header  http.Header
			body    []byte
		}{
			{"decode-only", http.HandlerFunc(decodeOnly), jsonHeader(), wrapped},
			{"wrapped", handler, jsonHeader(), wrapped},
			{"eventarc", handler, eventarcHeader(), wrapped},
			{"unwrapped", handler, unwrappedHeader(), payload},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, size), func(b *testing.B) {
				w := &reusable{header: http.Header{}}
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					body := bytes.NewReader(c.body)
					r := &http.Request{Method: http.MethodPost, Header: c.header,
						Body: io.NopCloser(body), ContentLength: body.Size()}
					c.handler.ServeHTTP(w, r)
				}
				if w.status != http.StatusNoContent {
					b.Fatalf("answered %d", w.status)
				}
			})
		}
	}
}
