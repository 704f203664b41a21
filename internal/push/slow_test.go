package push_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// pipes is a server over connections in memory.
type pipes struct {
	t     *testing.T
	conns chan net.Conn
	done  chan struct{}
	wg    sync.WaitGroup
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve runs test against a server of h, in a bubble.
func serve(t *testing.T, h http.Handler, test func(p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{t: t, conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: h}
		p.wg.Go(func() { _ = srv.Serve(p) })
		test(p)
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		p.wg.Wait()
	})
}

// answer is the status of a request and how long it took; 0 is none.
type answer struct {
	status int
	after  time.Duration
}

// send sends a request with an unwrapped body in parts, with a pause after each, and the
// length declared where it is not negative.
func (p *pipes) send(length, parts int, part string, pause time.Duration) answer {
	client, server := net.Pipe()
	defer client.Close()
	start := time.Now()
	p.conns <- server
	p.wg.Go(func() {
		frame, head, last := "%s", fmt.Sprintf("Content-Length: %d", length), ""
		if length < 0 {
			frame, head, last = fmt.Sprintf("%x\r\n%%s\r\n", len(part)), "Transfer-Encoding: chunked", "0\r\n\r\n"
		}
		text := "POST / HTTP/1.1\r\nHost: x\r\nX-Goog-Pubsub-Message-Id: 1\r\n" + head + "\r\n\r\n"
		for i := range parts {
			if _, err := io.WriteString(client, text+fmt.Sprintf(frame, part)); err != nil {
				return
			}
			if text = ""; i < parts-1 {
				time.Sleep(pause)
			}
		}
		_, _ = io.WriteString(client, last) // after the answer nobody reads
	})
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		return answer{0, time.Since(start)}
	}
	return answer{resp.StatusCode, time.Since(start)}
}

// good sends a request of n bytes at once.
func (p *pipes) good(n int) answer { return p.send(n, 1, strings.Repeat("x", n), 0) }

func accept(context.Context, *push.Delivery) error { return nil }

// A body that does not arrive is given up after ten seconds, and one that trickles when it
// is slower than a second for each 256 KiB.
func TestABodyHasADeadlineOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		length, parts, part int
		pause               time.Duration
		want                answer
	}{
		"declared, one byte":      {15 << 20, 2, 1, time.Hour, answer{http.StatusRequestTimeout, 10 * time.Second}},
		"chunked, one byte":       {-1, 2, 1, time.Hour, answer{http.StatusRequestTimeout, 10 * time.Second}},
		"15 MiB in 60 s":          {15 << 20, 15, 1 << 20, 4 * time.Second, answer{http.StatusNoContent, 56 * time.Second}},
		"10 MiB in 50 s, chunked": {-1, 10, 1 << 20, 5 * time.Second, answer{http.StatusNoContent, 45 * time.Second}},
		"a third of that rate":    {15 << 20, 15, 1 << 20, 12 * time.Second, answer{http.StatusRequestTimeout, 18 * time.Second}},
		"within ten seconds":      {20, 20, 1, 500 * time.Millisecond, answer{http.StatusNoContent, 9500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			h := push.Handler(push.Config{MaxRequestBytes: 96 << 20, Budget: 270 * time.Second, Logger: quiet()}, accept)
			serve(t, h, func(p *pipes) {
				if got := p.send(c.length, c.parts, strings.Repeat("x", c.part), c.pause); got.status != c.want.status || got.after.Round(time.Millisecond) != c.want.after {
					t.Errorf("answered %d after %v, want %v", got.status, got.after, c.want)
				}
			})
		})
	}
}

// A caller whose body has arrived is not cut off by the body's deadline while its delivery
// takes longer.
func TestTheDeadlineOfTheBodyEndsWithIt(t *testing.T) {
	h := push.Handler(push.Config{MaxRequestBytes: 96 << 20, Budget: 270 * time.Second, Logger: quiet()}, func(ctx context.Context, _ *push.Delivery) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return nil
		}
	})
	serve(t, h, func(p *pipes) {
		for _, n := range []int{100, 1 << 20} {
			if got := p.good(n); got != (answer{http.StatusNoContent, time.Minute}) {
				t.Errorf("answered %v", got)
			}
		}
	})
}

// Slow bodies do not hold what others need: neither those that trickle nor those of which
// no more than a byte comes, with as much memory as there is by default and with little.
//
// covers: SNK-23
func TestGoodRequestsAreAnsweredBesideSlowBodies(t *testing.T) {
	for name, c := range map[string]struct {
		bound int64
		slow  func(p *pipes)
	}{
		"one half-open, chunked": {96 << 20, func(p *pipes) { p.send(-1, 2, "x", time.Hour) }},
		"200 of 100 KB and one of 15 MB": {96 << 20, func(p *pipes) {
			for range 200 {
				p.wg.Go(func() { p.send(100_000, 100, strings.Repeat("x", 1000), 200*time.Millisecond) })
			}
			p.send(15_000_000, 100, strings.Repeat("x", 150_000), 200*time.Millisecond)
		}},
		"the same in a third of the memory": {32 << 20, func(p *pipes) {
			for range 200 {
				p.wg.Go(func() { p.send(100_000, 100, strings.Repeat("x", 1000), 200*time.Millisecond) })
			}
			p.send(15_000_000, 100, strings.Repeat("x", 150_000), 200*time.Millisecond)
		}},
		"900 half-open of 256 KiB": {96 << 20, func(p *pipes) {
			for range 900 {
				p.wg.Go(func() { p.send(256<<10, 2, "x", time.Hour) })
			}
		}},
		"50 of 15 MB, nearly whole": {96 << 20, func(p *pipes) {
			for range 50 {
				p.wg.Go(func() { p.send(15_000_000, 2, strings.Repeat("x", 14_000_000), time.Hour) })
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := push.Handler(push.Config{MaxRequestBytes: c.bound, Budget: 270 * time.Second, Logger: quiet()}, accept)
			serve(t, h, func(p *pipes) {
				p.wg.Go(func() { c.slow(p) })
				var worst time.Duration
				for i := range 400 {
					time.Sleep(50 * time.Millisecond)
					got := p.good([]int{100, 10_000, 100_000, 250_000}[i%4])
					if got.status != http.StatusNoContent {
						t.Errorf("request %d: %v", i, got)
					}
					worst = max(worst, got.after)
				}
				if worst >= 2*time.Second {
					t.Errorf("the slowest answer came after %v", worst)
				}
			})
		})
	}
}

// The oldest request finishes whatever it needs; a body half-way that does not fit beside
// the others is refused with 429 within a second, and those of a burst all get in.
func TestTheOldestRequestCanAlwaysFinish(t *testing.T) {
	h := push.Handler(push.Config{MaxRequestBytes: 48 << 20, Budget: 270 * time.Second, Logger: quiet()}, accept)
	serve(t, h, func(p *pipes) {
		var oldest answer
		var wg sync.WaitGroup
		wg.Go(func() { oldest = p.send(14<<20, 14, strings.Repeat("x", 1<<20), time.Second) })
		synctest.Wait()
		if got := p.send(14<<20, 14, strings.Repeat("x", 1<<20), time.Second); got.status != http.StatusTooManyRequests || got.after > 8*time.Second {
			t.Errorf("the second large body: %v", got)
		}
		wg.Wait()
		if oldest != (answer{http.StatusNoContent, 13 * time.Second}) {
			t.Errorf("the oldest: %v", oldest)
		}
		answers := make([]answer, 300)
		for i := range answers {
			wg.Go(func() { answers[i] = p.good(200_000) })
		}
		wg.Wait()
		for _, got := range answers {
			if got.status != http.StatusNoContent {
				t.Fatalf("one of a burst: %v", got)
			}
		}
	})
}
