package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

// Events are all written, soon, while every twentieth request is hostile: a message of a
// shape that becomes much, or a body that stops after its first bytes. The process that is
// deployed with 256 MiB lives through it.
func TestGoodEventsBesideHostileOnes(t *testing.T) {
	events := 2000
	switch {
	case soak():
		events = 20_000
	case race.Enabled:
		events = 400
	}
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	c := startOrders(t, b, deployedMemory)
	const clients = 32
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	took := make([]time.Duration, events)
	hostile := newHostility(t, c, client)
	var next, again atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < events; i = int(next.Add(1)) - 1 {
				if i%20 == 0 {
					hostile.send(i / 20)
				}
				began := time.Now()
				for post(client, c.url, envelope(i, order(i))) != http.StatusNoContent {
					if again.Add(1); time.Since(began) > time.Minute {
						t.Errorf("event %d is not taken for a minute", i)
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	hostile.wait()
	select {
	case <-c.exited:
		t.Fatal("the function has ended")
	default:
	}
	keys := b.orderKeys(t)
	for i := range events {
		if !keys[orderKey(i)] {
			t.Errorf("event %d was acknowledged and is not in the table", i)
		}
	}
	slices.Sort(took)
	peak, p99 := peakMiB(t, c.cmd.Process.Pid), took[events*99/100]
	t.Logf("%d events, p50 %v, p99 %v, %d deliveries came again; %d hostile ones; peak RSS %d MiB",
		events, took[events/2].Round(time.Millisecond), p99.Round(time.Millisecond), again.Load(), hostile.sent.Load(), peak)
	if peak > 256 && !race.Enabled {
		t.Errorf("peak RSS %d MiB, want at most 256", peak)
	}
	if p99 > 2*time.Second && soak() { // which runs on a machine of its own
		t.Errorf("p99 is %v, want at most 2s", p99)
	}
}

// hostility sends hostile requests, a few at a time.
type hostility struct {
	t      *testing.T
	c      *child
	client *http.Client
	room   chan struct{}
	wg     sync.WaitGroup
	sent   atomic.Int64
}

func newHostility(t *testing.T, c *child, client *http.Client) *hostility {
	return &hostility{t: t, c: c, client: client, room: make(chan struct{}, 20)}
}

// send sends the n-th hostile request, once there is room for it, and does not wait for its
// answer.
func (h *hostility) send(n int) {
	h.room <- struct{}{}
	h.wg.Go(func() {
		defer func() { <-h.room }()
		h.sent.Add(1)
		if n%3 == 0 {
			h.halfOpen()
			return
		}
		s := hostileShapes[n%len(hostileShapes)]
		size := s.quick
		if race.Enabled {
			size /= 10
		}
		post(h.client, h.c.url, envelope(1_000_000+n, s.make(size)))
	})
}

// halfOpen sends a request's first bytes and then nothing for three seconds.
func (h *hostility) halfOpen() {
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(h.c.url, "http://"), "/"))
	if err != nil {
		h.t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	time.Sleep(3 * time.Second)
}

func (h *hostility) wait() { h.wg.Wait() }
