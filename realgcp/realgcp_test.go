package realgcp

import (
	"testing"
	"time"
)

// covers: TST-07
func TestOnlyWhatARunOfOursHasLeftIsStale(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	old := ID(now.Add(-3*time.Hour), "ab")
	if old != "btf-real-htm70ab" {
		t.Errorf("the id is %s", old)
	}
	for id, want := range map[string]bool{
		old:                          true,
		ID(now, "ab"):                false,
		ID(now.Add(-keep), "ab"):     false,
		ID(now.Add(time.Hour), "a1"): false,
		"":                           false,
		"my-instance":                false,
		"btf-real-":                  false,
		"btf-real-htm70":             false,
		old + "c":                    false,
		"x" + old:                    false,
		"btf-real-.tjd0ab":           false,
		"btf-real--tjd0ab":           false,
	} {
		if got := IsStale(id, now); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}
