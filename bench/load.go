package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const clients = 64

// load is what is sent to a function.
type load struct {
	per int     // records per event, as NDJSON where there are several
	bad float64 // share of records whose row Bigtable refuses
	url string
	pid int
}

// result is what came of it.
type result struct {
	events   float64 // per second
	cpu      float64 // µs per record
	p50, p99 time.Duration
	peak     int // MiB
}

// data is event i: every record has a row of its own.
func (l *load) data(i int) []byte {
	var b bytes.Buffer
	for k := range l.per {
		n := i*l.per + k
		kind := "a"
		if every := int(1 / max(l.bad, 1e-9)); l.bad > 0 && n%every == every/2 {
			kind = "bad"
		}
		fmt.Fprintf(&b, `{"type":"order.updated","tenant":"acme","id":"%s-%d","status":"PAID","total_cents":%d,"cancelled":false,"updated_at":"2026-08-30T10:15:30.123Z","coupon":"SUMMER"}`, kind, n, n)
		if l.per > 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// post delivers event i as Eventarc does.
func (l *load) post(ctx context.Context, client *http.Client, i int) error {
	body := fmt.Appendf(nil, `{"message":{"data":"%s","attributes":{"kind":"order"},"messageId":"%d","publishTime":"2026-08-30T10:15:31.000Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString(l.data(i)), i)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "ce-id": strconv.Itoa(i), "ce-specversion": "1.0",
		"ce-type": "google.cloud.pubsub.topic.v1.messagePublished", "ce-source": "//pubsub.googleapis.com/projects/p/topics/t",
	} {
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %d", resp.StatusCode)
	}
	return nil
}

// newClient gives up on a request in time: the receiver that the CloudEvent function uses
// leaves some unanswered (cloudevents/sdk-go#1224).
func (l *load) newClient() *http.Client {
	timeout := 10 * time.Second
	if l.per > 1 {
		timeout = time.Minute
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}}
}

// run sends warm events, then the ones that count.
func (l *load) run(ctx context.Context, warm, events int) (result, error) {
	client := l.newClient()
	defer client.CloseIdleConnections()
	if _, err := l.send(ctx, client, 1<<24, warm); err != nil {
		return result{}, err
	}
	before, err := cpuTime(l.pid)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	took, err := l.send(ctx, client, 0, events)
	if err != nil {
		return result{}, err
	}
	elapsed := time.Since(began)
	after, err := cpuTime(l.pid)
	if err != nil {
		return result{}, err
	}
	peak, err := peakMiB(l.pid)
	if err != nil {
		return result{}, err
	}
	slices.Sort(took)
	return result{
		events: float64(events) / elapsed.Seconds(), cpu: float64((after - before).Microseconds()) / float64(events*l.per),
		p50: took[len(took)/2].Round(10 * time.Microsecond), p99: took[len(took)*99/100].Round(10 * time.Microsecond), peak: peak,
	}, nil
}

// send delivers n events over the clients. One in a thousand may go without an answer.
func (l *load) send(ctx context.Context, client *http.Client, from, n int) ([]time.Duration, error) {
	var next, failed atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	var last error
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var mine []time.Duration
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				began := time.Now()
				if err := l.post(ctx, client, from+i); err != nil {
					failed.Add(1)
					mu.Lock()
					last = err
					mu.Unlock()
				}
				mine = append(mine, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if failed.Load() > int64(n/1000) {
		return nil, fmt.Errorf("%d of %d events failed, the last: %w", failed.Load(), n, last)
	}
	return all, nil
}

// first delivers one event, again and again until it is acknowledged.
func (l *load) first(ctx context.Context) error {
	client := l.newClient()
	defer client.CloseIdleConnections()
	var err error
	for range 1000 {
		if err = l.post(ctx, client, 0); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}
