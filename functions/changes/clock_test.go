package changes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
)

// The function takes the time of its letters, lags and windows from Config.Now alone.
func TestTheTimeComesFromTheConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "onFailure: dead-letter, window: 30s, "+toLog)
		ahead := time.Hour
		r.cfg.Now = func() time.Time { return time.Now().Add(ahead) }
		r.refuse = noTwos
		r.tick()
		for i := range int64(4) {
			r.set("a", i)
		}
		tasks := r.take()
		for _, data := range tasks {
			r.deliver(t.Context(), r.cfg, data)
		}
		if len(r.visits) > 0 {
			t.Errorf("a task that is an hour old by Config.Now is worked on: %s", r.outcomes())
		}
		ahead = 20 * time.Second
		for _, data := range tasks {
			r.deliver(t.Context(), r.cfg, data)
		}
		if len(r.letters) != 1 || len(r.visits) != 1 {
			t.Fatalf("%d letters and %d visits: %s", len(r.letters), len(r.visits), r.log)
		}
		if early := time.Now().Add(10 * time.Second); r.letters[0].Time.Before(early) {
			t.Errorf("the letter is of %s, and Config.Now says 20 s after %s", r.letters[0].Time, time.Now())
		}
		v := r.visits[0]
		if v.Outcome != changes.OutcomeIdle || v.Lag < ahead || v.Lag > ahead+30*time.Second {
			t.Errorf("%s with a lag of %s", v.Outcome, v.Lag)
		}
	})
}
