package mapping

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

func TestWhatNoRecordFitsIsRejected(t *testing.T) {
	reason := errors.New("no such key")
	for _, err := range []error{
		&Rejection{Mapping: "orders", Place: "rowKey", Err: reason},
		&OutputError{Place: "record.total", Err: reason},
	} {
		wrapped := fmt.Errorf("mapping: %w", err)
		if !retry.IsRejected(wrapped) || retry.Classify(wrapped).Verdict != retry.VerdictRejected {
			t.Errorf("%T is not rejected", err)
		}
		if !errors.Is(wrapped, reason) {
			t.Errorf("%T hides its reason", err)
		}
	}
}
