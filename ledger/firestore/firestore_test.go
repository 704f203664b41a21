package firestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestAgainstTheEmulator(t *testing.T) {
	host := googleemu.Start(t, "firestore")
	t.Run("store", func(t *testing.T) {
		t.Setenv("FIRESTORE_EMULATOR_HOST", host)
		storetest.Run(t, func(t *testing.T) ledger.Store { return open(t, "(default)") })
	})
	t.Run("databases are apart", func(t *testing.T) {
		t.Setenv("FIRESTORE_EMULATOR_HOST", host)
		apart(t)
	})
	t.Run("a commit that the client repeats is known again", func(t *testing.T) { repeated(t, host) })
}

func open(t *testing.T, database string, options ...option.ClientOption) *Store {
	t.Helper()
	s, err := Open(t.Context(), "project", database, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func apart(t *testing.T) {
	key := ledger.Key{Collection: "apart", ID: "d"}
	if _, err := open(t, "one").Commit(t.Context(), []ledger.Write{{Key: key, Body: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	for database, want := range map[string]string{"one": "1", "two": ""} {
		docs, err := open(t, database).Get(t.Context(), key)
		if err != nil || string(docs[0].Body) != want {
			t.Errorf("database %s has %q, %v, want %q", database, docs[0].Body, err, want)
		}
	}
}

// repeated lets every commit be applied once and its reply be lost, so that the
// client sends it again; a whole scan comes out as if nothing had been.
func repeated(t *testing.T, host string) {
	var lost atomic.Int32
	s := open(t, "(default)", option.WithGRPCConn(dial(t, host, func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && strings.HasSuffix(method, "/Commit") && lost.Add(1)%2 == 1 {
			return status.Error(codes.Unavailable, "the reply is lost")
		}
		return err
	})))
	l := ledger.New(s, "repeated", ledger.Options{})
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	var splits [][]rowrange.Range
	for i := range 3 {
		splits = append(splits, []rowrange.Range{rowrange.Closed(fmt.Sprint(i))})
	}
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: splits})
	if err != nil {
		t.Fatal(err)
	}
	var completed *ledger.Scan
	for i := range splits {
		lease, err := l.Acquire(t.Context(), ledger.Task{Scan: "s", Attempt: scan.Attempt, Index: i}, "w")
		if err != nil {
			t.Fatal(err)
		}
		if lease.Fence() != 1 {
			t.Errorf("fence %d, want 1: the lease was taken once", lease.Fence())
		}
		p := ledger.Progress{Position: fmt.Sprint(i), Counts: ledger.Counts{Rows: 1}}
		if err := lease.Commit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		next, err := lease.Finish(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		completed = next.Scan
	}
	if completed == nil || completed.Rows != 3 || completed.State != ledger.ScanDone {
		t.Errorf("completed: %+v, want done with 3 rows", completed)
	}
	if lost.Load() < 9 {
		t.Errorf("%d commits, want at least nine, of which every other was lost", lost.Load())
	}
}

func dial(t *testing.T, host string, interceptor grpc.UnaryClientInterceptor) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(interceptor))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestErrorsMeanWhatTheLedgerKnows(t *testing.T) {
	known := []error{ledger.ErrConflict, ledger.ErrUnavailable, ledger.ErrTooLarge}
	conflicts := map[string]func(codes.Code) bool{"commit": isStale, "transaction": isStaleOrClosed, "read": never}
	for _, c := range []struct {
		what string
		code codes.Code
		want error
	}{
		{"commit", codes.FailedPrecondition, ledger.ErrConflict},
		{"commit", codes.AlreadyExists, ledger.ErrConflict},
		{"commit", codes.NotFound, ledger.ErrConflict},
		{"commit", codes.Aborted, ledger.ErrUnavailable},
		{"commit", codes.Unavailable, ledger.ErrUnavailable},
		{"commit", codes.DeadlineExceeded, ledger.ErrUnavailable},
		{"commit", codes.ResourceExhausted, ledger.ErrUnavailable},
		{"commit", codes.PermissionDenied, nil},
		{"commit", codes.InvalidArgument, nil},
		{"transaction", codes.InvalidArgument, ledger.ErrConflict},
		{"transaction", codes.FailedPrecondition, ledger.ErrConflict},
		{"read", codes.NotFound, nil}, // the database
		{"read", codes.FailedPrecondition, nil},
		{"read", codes.Unavailable, ledger.ErrUnavailable},
		{"read", codes.Aborted, ledger.ErrUnavailable},
	} {
		err := explain(t.Context(), "doing", fmt.Errorf("wrapped: %w", status.Error(c.code, "from the service")), conflicts[c.what])
		for _, k := range known {
			if errors.Is(err, k) != (k == c.want) {
				t.Errorf("%v of a %s: %v, is %q: %t", c.code, c.what, err, k, errors.Is(err, k))
			}
		}
		if !strings.Contains(err.Error(), "from the service") {
			t.Errorf("%v: %v does not say what the service said", c.code, err)
		}
	}
}

func TestTheCallersContextOutweighsTheService(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := explain(ctx, "writing", status.Error(codes.Unavailable, "x"), isStale)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestAVersionIsExact(t *testing.T) {
	s := open(t, "(default)", option.WithGRPCConn(dial(t, "127.0.0.1:1", nil)))
	for _, w := range []ledger.Write{
		{Key: ledger.Key{Collection: "c", ID: "d"}, Version: "17", Body: []byte("1")},
		{Op: ledger.OpDelete, Key: ledger.Key{Collection: "c", ID: "d"}},
	} {
		if _, err := s.Commit(t.Context(), []ledger.Write{w}); err == nil || slices.ContainsFunc([]error{ledger.ErrConflict, ledger.ErrUnavailable},
			func(known error) bool { return errors.Is(err, known) }) {
			t.Errorf("a commit of op %d at version %q: %v, want it refused here", w.Op, w.Version, err)
		}
	}
}
