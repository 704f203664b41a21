package emulator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// What has been served is durable, heartbeats included: an emulator that starts
// from what the disk held when a client got a token goes on from that token
// without a change that is missing or comes twice, and new changes get places
// behind it.
func TestATokenIsNeverAheadOfWhatADeadEmulatorLeaves(t *testing.T) {
	dir := t.TempDir()
	f := start(t, emulator.Options{DataDir: dir})
	f.SetClock(noon)
	f.create(t, streamed())
	written := make(chan error, 1)
	go func() {
		for i := range 400 {
			_, err := mutate(t.Context(), f.data, batch(i, 1))
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	r := f.open(t, ",", fromTime(noon), beating(time.Millisecond))
	for served := 0; served < 400; {
		res := r.next(t)
		tok := res.GetHeartbeat().GetContinuationToken()
		if c := res.GetDataChange(); c != nil {
			served++
			tok = &token{Partition: r.partition.proto(), Token: c.Token}
		}
		if served%40 != 20 {
			continue
		}
		// The lock is held by the emulator that lives on.
		left := filepath.Join(t.TempDir(), "left")
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		next := start(t, emulator.Options{DataDir: left})
		next.SetClock(noon)
		if _, err := mutate(t.Context(), next.data, batch(1000, 1)); err != nil {
			t.Fatal(err)
		}
		again := next.open(t, ",", fromTokens(tok))
		for want := served; ; want++ {
			key := string(again.record(t).RowKey)
			if key == fmt.Sprintf("row%09d", 1000) {
				break
			}
			if key != fmt.Sprintf("row%09d", want) {
				t.Fatalf("%s comes after %d changes that were served", key, want)
			}
		}
		again.stop()
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
