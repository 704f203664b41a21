// Package retry guarantees that an error means the same everywhere: Classify is
// the one reading of statuses and client errors, Backoff the one way to wait. Both
// are pure. A record is given up only on a confirmed verdict about itself: any sign
// of an outage beside it, anywhere in the chain of causes, outweighs the verdict.
package retry

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Verdict says what an error means for the work it ended.
type Verdict uint8

// The four verdicts.
const (
	// VerdictFatal: another attempt here is of no use, and somebody must act. The work is
	// refused and comes back; it is never dropped. It is also the verdict on an error that
	// cannot be classified.
	VerdictFatal Verdict = iota
	// VerdictTransient: the same attempt may succeed later.
	VerdictTransient
	// VerdictMissing: a table or a family does not exist.
	VerdictMissing
	// VerdictRejected: this can never succeed as it is. See Rejected.
	VerdictRejected
)

// String returns the verdict's name.
func (v Verdict) String() string {
	return [...]string{"fatal", "transient", "missing", "rejected"}[v]
}

// Class is what an error means.
type Class struct {
	Verdict Verdict
	// Code is the status that decided the verdict, or codes.Unknown if the error
	// carries none.
	Code codes.Code
	// Delay is how long the service asks to wait (google.rpc.RetryInfo), or 0 if it
	// does not say.
	Delay time.Duration
	// NotApplied says that the attempt certainly changed nothing. It holds for the
	// status of one entry, and for that of a call of which no response arrived.
	NotApplied bool
}

// NotSent marks an error of an attempt of which nothing left this process.
type NotSent struct{ Err error }

// Error implements error.
func (n *NotSent) Error() string { return "not sent: " + n.Err.Error() }

// Unwrap returns the cause.
func (n *NotSent) Unwrap() error { return n.Err }

// Classify reads the whole chain of causes (errors joined included), in this order:
// NOT_FOUND anywhere is missing; a transient status anywhere is transient; else the
// first status or known client error decides, and only INVALID_ARGUMENT (AIP-194:
// never to be retried) or a *Rejected is rejected. A status with RetryInfo is
// transient whatever its code. A nil error panics: it has no verdict.
func Classify(err error) Class {
	if err == nil {
		panic("retry: Classify of a nil error")
	}
	var s scan
	s.walk(err)
	c := Class{Verdict: VerdictFatal, Code: codes.Unknown, Delay: s.delay}
	switch {
	case s.missing:
		c.Verdict, c.Code = VerdictMissing, codes.NotFound
	case s.transient:
		c.Verdict, c.Code = VerdictTransient, s.transientCode
	case s.found:
		c.Code = s.first
		if s.first == codes.InvalidArgument || s.rejected {
			c.Verdict = VerdictRejected
		}
	}
	c.NotApplied = s.notSent || s.found && !s.ambiguous
	return c
}

// Persists reports whether the next attempt meets the error too, until somebody acts. It is
// false for an error that passes by itself, for one without a known status and for the end
// of a context that was cancelled.
func (c Class) Persists() bool {
	return c.Verdict != VerdictTransient && c.Code != codes.Unknown && c.Code != codes.Canceled
}

// scan collects what a chain of causes says.
type scan struct {
	found, rejected, missing, transient, notSent, ambiguous bool
	first, transientCode                                    codes.Code
	delay                                                   time.Duration
}

func (s *scan) walk(err error) {
	s.visit(err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			s.walk(next)
		}
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			if next != nil {
				s.walk(next)
			}
		}
	}
}

func (s *scan) visit(err error) {
	switch e := err.(type) {
	case *NotSent:
		s.notSent = true
		return
	case *Rejected:
		s.rejected = s.rejected || !s.found
		s.add(e.status(), "", 0)
		return
	case interface{ GRPCStatus() *status.Status }:
		if st := e.GRPCStatus(); st != nil && st.Code() != codes.OK {
			s.add(st.Code(), st.Message(), retryDelay(st))
		}
		return
	}
	if code := clientCode(err); code != codes.OK {
		s.add(code, "", 0)
	}
}

func (s *scan) add(code codes.Code, message string, delay time.Duration) {
	if !s.found {
		s.found, s.first = true, code
	}
	s.delay = max(s.delay, delay)
	s.missing = s.missing || code == codes.NotFound
	s.ambiguous = s.ambiguous || !refusedBeforeApplying(code)
	if isTransient(code, message) || delay > 0 {
		if !s.transient {
			s.transientCode = code
		}
		s.transient = true
	}
}

// clientCode returns the status that an error without one stands for, or OK if it stands for none.
func clientCode(err error) codes.Code {
	switch err {
	case context.DeadlineExceeded:
		return codes.DeadlineExceeded
	case context.Canceled:
		return codes.Canceled
	case io.ErrUnexpectedEOF:
		return codes.Unavailable
	}
	if _, ok := err.(*net.OpError); ok {
		return codes.Unavailable
	}
	return codes.OK
}

// isTransient lists the statuses that pass (Bigtable's documented status codes).
// INTERNAL passes only with a text that says so.
func isTransient(code codes.Code, message string) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted:
		return true
	case codes.Internal:
		return isCut(message)
	}
	return false
}

func isCut(message string) bool {
	m := strings.ToLower(message)
	for _, text := range [...]string{
		"rst_stream", "rst stream", "unexpected eof", "unexpected eos",
		// as the service's own Java client repeats them (java-bigtable, ReadChangeStream)
		"stream closed before write could take place", "authentication backend internal server error. please retry",
	} {
		if strings.Contains(m, text) {
			return true
		}
	}
	return false
}

// refusedBeforeApplying lists the codes with which a service refuses a request that
// it has not acted on.
func refusedBeforeApplying(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.Unauthenticated, codes.ResourceExhausted, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

func retryDelay(st *status.Status) time.Duration {
	if len(st.Proto().GetDetails()) == 0 {
		return 0
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// IsCode reports whether err's own status, the first in its chain, has the code.
func IsCode(err error, code codes.Code) bool {
	return err != nil && status.Code(err) == code
}
