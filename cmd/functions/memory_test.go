package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

const stallFile = `
version: 1
name: pair
bigtable: {project: my-project, instance: my-instance}
tables:
  slow: {families: {cf: {}}}
  quick: {families: {cf: {}}}
write:
  format: json
  mappings:
    - name: slow
      when: event.to == "slow"
      table: slow
      rowKey: event.id
      mutations: [{set: {cf: {v: event.text}}}]
    - name: quick
      when: event.to == "quick"
      table: quick
      rowKey: event.id
      mutations: [{set: {cf: {v: event.text}}}]
`

// While one table does not answer, an instance that is sent as much as Cloud Run lets in
// stays within its memory, and events of other tables are acknowledged, small and large.
//
// covers: SNK-22, SNK-23, SNK-25
func TestASilentTableTakesNeitherMemoryNorTheOtherTable(t *testing.T) {
	outage := 12 * time.Second
	if soak() {
		outage = time.Minute
	}
	sizes := []int{1 << 10, 100 << 10}
	if race.Enabled {
		sizes = sizes[:1]
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("events of %d KiB", size>>10), func(t *testing.T) {
			silentTable(t, size, outage)
		})
	}
}

// backoff waits as the subscription does after a refusal, ten seconds at least.
func backoff(stopping *atomic.Bool) {
	for began := time.Now(); time.Since(began) < 10*time.Second && !stopping.Load(); {
		time.Sleep(50 * time.Millisecond)
	}
}

func silentTable(t *testing.T, size int, outage time.Duration) {
	f := newDeployment(t, stallFile, 1, deployedMemory)
	f.emulator.Inject(emulator.Fault{Method: "MutateRows", Table: "projects/my-project/instances/my-instance/tables/slow", Hang: true})
	const concurrency = 1000 // of a Cloud Run instance
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}, Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	text := strings.Repeat("x", size)
	event := func(to string, i int) []byte {
		return envelope(i, fmt.Appendf(nil, `{"to":%q,"id":"row-%d","text":%q}`, to, i, text))
	}
	var stopping atomic.Bool
	var sent, refused atomic.Int64
	var slow sync.WaitGroup
	for range concurrency - 20 {
		slow.Go(func() {
			for !stopping.Load() {
				if post(client, f.children[0].url, event("slow", int(sent.Add(1)))) == http.StatusTooManyRequests {
					refused.Add(1)
					backoff(&stopping)
				}
			}
		})
	}
	defer slow.Wait()
	defer f.children[0].cmd.Process.Kill() // what waits for the slow table ends
	defer stopping.Store(true)

	start := time.Now()
	acked, tried := 0, 0
	var longest time.Duration
	for since := time.Since(start); since < outage || acked < 20 && since < 2*time.Minute; since = time.Since(start) {
		began := time.Now()
		if tried++; post(client, f.children[0].url, event("quick", tried)) == http.StatusNoContent {
			acked++
			longest = max(longest, time.Since(began))
		}
	}
	peak := peakMiB(t, f.children[0].cmd.Process.Pid)
	t.Logf("%d of %d events of the other table acknowledged, the slowest after %v; %d of %d slow ones refused; peak RSS %d MiB",
		acked, tried, longest.Round(time.Millisecond), refused.Load(), sent.Load(), peak)
	if peak > 256 && !race.Enabled {
		t.Errorf("peak RSS %d MiB, want at most 256", peak)
	}
	if acked < 20 || acked < tried*9/10 {
		t.Errorf("%d of %d events of the other table acknowledged", acked, tried)
	}
	if n := len(f.rows("quick")); n < acked {
		t.Errorf("%d rows of %d acknowledged events", n, acked)
	}
}
