package mapping

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Times are printed as the library prints them, whatever was printed before.
func TestTimesArePrintedAsRFC3339(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			at := time.Unix(rapid.Int64Range(-62_135_596_800, 253_402_300_799).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
			if got, want := string(c.appendTime(nil, at)), at.Format(`"`+time.RFC3339Nano+`"`); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
			if got, want := string(c.append(nil, at.UnixMicro())), at.Truncate(time.Microsecond).Format(`"`+time.RFC3339Nano+`"`); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	})
}
