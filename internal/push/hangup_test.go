package push_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// 64 clients send 4,000 requests; of every three requests one is cut off
// half-way, in the headers, in the body or before the answer. Every other is
// answered within two seconds, and each undisturbed message is delivered exactly
// as often as it was sent.
func TestClientsThatHangUpDisturbNobody(t *testing.T) {
	const clients, requests = 64, 4000
	var delivered sync.Map
	var malformed atomic.Int64
	srv := httptest.NewServer(push.Handler(
		push.Config{MaxRequestBytes: 96 << 20, Budget: time.Minute, Logger: quiet()},
		func(_ context.Context, d *push.Delivery) error {
			if d.Malformed != nil {
				malformed.Add(1)
			}
			n, _ := delivered.LoadOrStore(d.Message.ID, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return nil
		}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")

	todo := make(chan int)
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for range clients {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Second}
			defer client.CloseIdleConnections()
			for i := range todo {
				if i%3 == 0 {
					hangUp(t, addr, i)
					continue
				}
				start := time.Now()
				send(t, client, srv.URL, i)
				storeMax(&slowest, int64(time.Since(start)))
			}
		})
	}
	for i := range requests {
		todo <- i
	}
	close(todo)
	wg.Wait()

	for i := range requests {
		n, ok := delivered.Load(fmt.Sprint(i))
		switch {
		case i%3 == 0 && i%9 != 6 && ok: // the body was cut
			t.Errorf("request %d was cut off and delivered", i)
		case i%3 != 0 && (!ok || n.(*atomic.Int64).Load() != 1):
			t.Errorf("request %d was answered but not delivered once", i)
		}
	}
	if n := malformed.Load(); n > 0 {
		t.Errorf("%d cut bodies were delivered as malformed", n)
	}
	t.Logf("slowest undisturbed answer: %v", time.Duration(slowest.Load()))
}

func body(i int) string {
	return fmt.Sprintf(`{"message":{"data":"%s","messageId":"%d","publishTime":"2024-01-02T03:04:05Z"},"subscription":"s"}`,
		strings.Repeat("aGho", 1+i%2000), i)
}

func send(t *testing.T, client *http.Client, url string, i int) {
	resp, err := client.Post(url, "application/json", strings.NewReader(body(i)))
	if err != nil {
		t.Errorf("request %d was not answered: %v", i, err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("request %d was answered %d, %v", i, resp.StatusCode, err)
	}
}

// hangUp sends a part of a request and closes the connection.
func hangUp(t *testing.T, addr string, i int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Errorf("connecting: %v", err)
		return
	}
	defer conn.Close()
	b := body(i)
	text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
	switch i % 9 {
	case 0:
		text = text[:40]
	case 3:
		text = text[:len(text)-len(b)/2]
	case 6: // whole, but nobody waits for the answer
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Errorf("writing: %v", err)
	}
}

func storeMax(max *atomic.Int64, v int64) {
	for old := max.Load(); v > old; old = max.Load() {
		if max.CompareAndSwap(old, v) {
			return
		}
	}
}
