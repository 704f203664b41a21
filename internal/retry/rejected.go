package retry

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// Rejected is the one type of an error that says that something can never succeed as it is:
// however often it is tried, the answer is the same. The function that returns it says what it
// is about: an entry (writer), a record of a sink (relay), a record or row that the pipeline
// file does not fit (mapping), a scan request, or a split (functions). An error about something
// larger wraps it only if that can never succeed either.
//
// It needs a Reason or an Err. Neither quotes a row key or a value.
type Rejected struct {
	// Code is the status of the service that refused it. Zero is a decision of this program,
	// which is classified as INVALID_ARGUMENT.
	Code   codes.Code
	Reason string
	// Detail is the service's own text. It may quote the record, so it belongs into a dead
	// letter and never into a log.
	Detail string
	Err    error // the cause, if there is one; its text then stands for Reason
}

// Error returns the reason, after the code if there is one.
func (r *Rejected) Error() string {
	reason := r.Reason
	if r.Err != nil {
		reason = r.Err.Error()
	}
	if r.Code == codes.OK {
		return reason
	}
	return r.Code.String() + ": " + reason
}

// Unwrap returns the cause, which may be nil.
func (r *Rejected) Unwrap() error { return r.Err }

func (r *Rejected) status() codes.Code {
	if r.Code == codes.OK {
		return codes.InvalidArgument
	}
	return r.Code
}

// IsRejected reports whether err is or wraps a *Rejected. It decides about an error that is
// about one thing; Classify also weighs what else went wrong beside it.
func IsRejected(err error) bool {
	var r *Rejected
	return errors.As(err, &r)
}
