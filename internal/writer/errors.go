package writer

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// Errors of entries that were not sent.
var (
	// ErrNotAdmitted: limits.inFlight left no room in time. The event should be
	// refused with 429, so that deliveries slow down.
	ErrNotAdmitted = errors.New("no room within limits.inFlight")
	// ErrHeld: the entry carries an idempotency token, and another entry of its call
	// is not applied. Once that is settled otherwise, it may be given to Apply again.
	ErrHeld = errors.New("not sent: another entry of the same event is not applied")
	// ErrBreakerOpen: too many entries in a row were rejected.
	ErrBreakerOpen = errors.New("limits.consecutiveRejections reached")
	// ErrClosed: the writer is closing.
	ErrClosed = errors.New("the writer is closed")

	errAfter   = errors.New("not sent: the entry before it of the same row is not applied")
	errExpired = errors.New("not sent before the event's deadline")
)

// Error says that an entry is not known to be applied. Its text names the table, the
// status and what to do; never the service's own text, which may quote a row key, but
// what gRPC itself says of a connection that was never made.
type Error struct {
	Table  string // see table.title
	Code   codes.Code
	Reason string // empty, or what to do
	Err    error  // the status as it came
}

// connectionError is how grpc-go's text begins if no connection could be made.
const connectionError = "connection error: "

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("applying to %s: %s", e.Table, e.Code)
	switch {
	case e.Reason != "":
		s += ": " + e.Reason
	case e.Code == codes.PermissionDenied:
		s += ": the function's service account lacks bigtable.tables.mutateRows there; roles/bigtable.user has it"
	case e.Code == codes.Unauthenticated:
		s += ": the function's credentials are not accepted"
	}
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(e.Err, &st) && e.Code == codes.Unavailable && strings.HasPrefix(st.GRPCStatus().Message(), connectionError) {
		s += ": " + st.GRPCStatus().Message()
	}
	return s
}

// Unwrap returns the status as it came. Its text may quote data.
func (e *Error) Unwrap() error { return e.Err }

// classify is retry.Classify, which also knows what an omitted outcome means.
func classify(err error) retry.Class {
	if err == btrpc.ErrOmitted {
		return retry.Class{Verdict: retry.VerdictTransient, Code: codes.Internal}
	}
	return retry.Classify(err)
}

// rejection is the verdict of the service on one entry.
func rejection(err error) *retry.Rejected {
	r := &retry.Rejected{Code: retry.Classify(err).Code, Reason: "refused by Bigtable"}
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(err, &st) {
		r.Detail = st.GRPCStatus().Message()
	}
	return r
}
