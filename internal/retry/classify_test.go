package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

func withRetryInfo(t testing.TB, code codes.Code, d time.Duration) error {
	t.Helper()
	st, err := status.New(code, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestAnErrorPersistsUnlessItPassesOrNobodyKnowsIt(t *testing.T) {
	passes := []codes.Code{
		codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Unavailable,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got, want := Classify(Bare(code)).Persists(), !slices.Contains(passes, code); got != want {
			t.Errorf("%s: %t, want %t", code, got, want)
		}
	}
	if Classify(errors.New("anything")).Persists() {
		t.Error("an error without a status persists")
	}
}

// covers: FAIL-01, FAIL-02, FAIL-03, FAIL-04
func TestEveryStatusHasOneVerdict(t *testing.T) {
	want := map[codes.Code]Class{
		codes.Canceled:           {Verdict: VerdictFatal},
		codes.Unknown:            {Verdict: VerdictFatal},
		codes.InvalidArgument:    {Verdict: VerdictRejected, NotApplied: true},
		codes.DeadlineExceeded:   {Verdict: VerdictTransient},
		codes.NotFound:           {Verdict: VerdictMissing, NotApplied: true},
		codes.AlreadyExists:      {Verdict: VerdictFatal, NotApplied: true},
		codes.PermissionDenied:   {Verdict: VerdictFatal, NotApplied: true},
		codes.ResourceExhausted:  {Verdict: VerdictTransient, NotApplied: true},
		codes.FailedPrecondition: {Verdict: VerdictFatal, NotApplied: true},
		codes.Aborted:            {Verdict: VerdictTransient},
		codes.OutOfRange:         {Verdict: VerdictFatal, NotApplied: true},
		codes.Unimplemented:      {Verdict: VerdictFatal, NotApplied: true},
		codes.Internal:           {Verdict: VerdictFatal},
		codes.Unavailable:        {Verdict: VerdictTransient},
		codes.DataLoss:           {Verdict: VerdictFatal},
		codes.Unauthenticated:    {Verdict: VerdictFatal, NotApplied: true},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		w, ok := want[code]
		if !ok {
			t.Errorf("no expectation for %v", code)
		}
		w.Code = code
		if got := Classify(status.Error(code, "text")); got != w {
			t.Errorf("%v: got %+v, want %+v", code, got, w)
		}
	}
}

// covers: FAIL-05, TBL-07
func TestTheChainOfCausesDecides(t *testing.T) {
	invalid := status.Error(codes.InvalidArgument, "bad")
	down := status.Error(codes.Unavailable, "down")
	missing := status.Error(codes.NotFound, "no table")
	denied := status.Error(codes.PermissionDenied, "no")
	for name, c := range map[string]struct {
		err  error
		want Verdict
		code codes.Code
	}{
		"wrapped verdict":                    {fmt.Errorf("a: %w", fmt.Errorf("b: %w", invalid)), VerdictRejected, codes.InvalidArgument},
		"outage beneath a verdict":           {errors.Join(invalid, fmt.Errorf("x: %w", down)), VerdictTransient, codes.Unavailable},
		"outage above a verdict":             {errors.Join(down, invalid), VerdictTransient, codes.Unavailable},
		"missing beside an outage":           {errors.Join(down, missing), VerdictMissing, codes.NotFound},
		"the first status decides":           {errors.Join(denied, invalid), VerdictFatal, codes.PermissionDenied},
		"a verdict before another failure":   {errors.Join(invalid, denied), VerdictRejected, codes.InvalidArgument},
		"plain errors are skipped":           {errors.Join(errors.New("x"), invalid), VerdictRejected, codes.InvalidArgument},
		"no status at all":                   {errors.New("x"), VerdictFatal, codes.Unknown},
		"our own verdict":                    {fmt.Errorf("y: %w", &Rejected{Code: codes.InvalidArgument, Reason: "too big"}), VerdictRejected, codes.InvalidArgument},
		"our own verdict beside an outage":   {errors.Join(&Rejected{Code: codes.InvalidArgument}, down), VerdictTransient, codes.Unavailable},
		"our own verdict with another code":  {&Rejected{Code: codes.OutOfRange}, VerdictRejected, codes.OutOfRange},
		"deadline of the context":            {fmt.Errorf("z: %w", context.DeadlineExceeded), VerdictTransient, codes.DeadlineExceeded},
		"cancelled context":                  {context.Canceled, VerdictFatal, codes.Canceled},
		"cut stream":                         {io.ErrUnexpectedEOF, VerdictTransient, codes.Unavailable},
		"refused connection":                 {&net.OpError{Op: "dial", Err: errors.New("refused")}, VerdictTransient, codes.Unavailable},
		"a status of OK says nothing":        {errors.Join(okError{}, invalid), VerdictRejected, codes.InvalidArgument},
		"a verdict with RetryInfo may pass":  {withRetryInfo(t, codes.InvalidArgument, time.Second), VerdictTransient, codes.InvalidArgument},
		"a fatal with RetryInfo may pass":    {withRetryInfo(t, codes.FailedPrecondition, time.Second), VerdictTransient, codes.FailedPrecondition},
		"missing with RetryInfo is missing":  {withRetryInfo(t, codes.NotFound, time.Second), VerdictMissing, codes.NotFound},
		"transient code beneath a fatal one": {errors.Join(denied, down), VerdictTransient, codes.Unavailable},
	} {
		if got := Classify(c.err); got.Verdict != c.want || got.Code != c.code {
			t.Errorf("%s: got %v %v, want %v %v", name, got.Verdict, got.Code, c.want, c.code)
		}
	}
}

type okError struct{}

func (okError) Error() string              { return "ok" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// issue-row: 22
func TestInternalThatIsACutConnectionPasses(t *testing.T) {
	for _, text := range []string{
		"stream terminated by RST_STREAM with error code: INTERNAL_ERROR",
		"HTTP/2 error: Stream closed before write could take place", "Authentication backend internal server error. Please retry.",
		"Received Rst stream", "RST_STREAM closed stream", "Received RST_STREAM with code 2",
		"server closed the stream without sending trailers: unexpected EOF",
	} {
		if c := Classify(status.Error(codes.Internal, text)); c.Verdict != VerdictTransient || c.NotApplied {
			t.Errorf("%q: %+v", text, c)
		}
	}
	if c := Classify(status.Error(codes.Internal, "bug")); c.Verdict != VerdictFatal {
		t.Errorf("another INTERNAL: %+v", c)
	}
}

func TestRetryInfoIsReported(t *testing.T) {
	err := fmt.Errorf("x: %w", withRetryInfo(t, codes.Unavailable, 7*time.Second))
	if got := Classify(err).Delay; got != 7*time.Second {
		t.Errorf("delay %v", got)
	}
}

func TestWhatWasNotSentIsNotApplied(t *testing.T) {
	c := Classify(&NotSent{Err: status.Error(codes.Unavailable, "no connection")})
	if c.Verdict != VerdictTransient || !c.NotApplied {
		t.Errorf("%+v", c)
	}
	if c := Classify(errors.New("x")); c.NotApplied {
		t.Error("an error without a status proves nothing")
	}
}

func TestARejectionPrintsNoDetail(t *testing.T) {
	err := &Rejected{Code: codes.InvalidArgument, Reason: "refused by Bigtable", Detail: "row key secret"}
	if s := err.Error(); strings.Contains(s, "secret") || !strings.Contains(s, "refused by Bigtable") {
		t.Errorf("%q", s)
	}
}

// covers: FAIL-05
func TestNoOutageEverBecomesARejection(t *testing.T) {
	transient := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		var err error
		for i := range n {
			code := codes.Code(rapid.IntRange(1, 16).Draw(t, "code"))
			if i == at {
				code = rapid.SampledFrom(transient).Draw(t, "transient")
			}
			next := status.Error(code, "x")
			if rapid.Bool().Draw(t, "wrap") {
				err = fmt.Errorf("w: %w", errors.Join(next, err))
			} else {
				err = errors.Join(err, next)
			}
		}
		if v := Classify(err).Verdict; v != VerdictTransient && v != VerdictMissing {
			t.Fatalf("%v: %v", err, v)
		}
	})
}

// covers: TBL-03
func TestBackoffDoublesUpToItsMaximumAndSpreads(t *testing.T) {
	b := Backoff{Initial: 500 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.25}
	want := []time.Duration{500, 1000, 2000, 4000, 8000, 10000, 10000}
	for i, w := range want {
		w *= time.Millisecond
		if got := b.Delay(i+1, 0.5); got != w {
			t.Errorf("after %d: %v, want %v", i+1, got, w)
		}
		if lo := b.Delay(i+1, 0); lo != w*3/4 {
			t.Errorf("after %d, least: %v", i+1, lo)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-3, 1<<30).Draw(t, "n")
		r := rapid.Float64Range(0, 0.999999).Draw(t, "r")
		d := b.Delay(n, r)
		if d < b.Initial*3/4 || d > b.Max*5/4 {
			t.Fatalf("%d: %v", n, d)
		}
	})
}

func TestRejectedWrapsItsCauseAndIsClassified(t *testing.T) {
	cause := errors.New("the filter has no column")
	for name, tc := range map[string]struct {
		err  *Rejected
		text string
		code codes.Code
	}{
		"a reason":              {&Rejected{Reason: "too large"}, "too large", codes.InvalidArgument},
		"a cause":               {&Rejected{Err: cause}, "the filter has no column", codes.InvalidArgument},
		"a code and a reason":   {&Rejected{Code: codes.OutOfRange, Reason: "too large", Detail: "row a"}, "OutOfRange: too large", codes.OutOfRange},
		"a cause with a code":   {&Rejected{Code: codes.OutOfRange, Err: cause}, "OutOfRange: the filter has no column", codes.OutOfRange},
		"a cause with a status": {&Rejected{Err: status.Error(codes.FailedPrecondition, "no")}, "rpc error: code = FailedPrecondition desc = no", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.err.Error(); got != tc.text {
				t.Errorf("text %q, want %q", got, tc.text)
			}
			if tc.err.Err != nil && !errors.Is(tc.err, tc.err.Err) {
				t.Error("the cause is not in the chain")
			}
			err := fmt.Errorf("planning: %w", tc.err)
			if c := Classify(err); c.Verdict != VerdictRejected || c.Code != tc.code || !c.Persists() {
				t.Errorf("classified as %s %s, persists: %t", c.Verdict, c.Code, c.Persists())
			}
			if !IsRejected(err) || IsRejected(cause) || IsRejected(nil) {
				t.Error("IsRejected does not tell a *Rejected from other errors")
			}
		})
	}
}
