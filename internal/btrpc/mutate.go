package btrpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// ErrOmitted is the outcome of an entry of which a complete response says nothing.
// Whether it was applied is not known.
var ErrOmitted = errors.New("the service's response omits the entry")

// End is what an attempt leaves behind beside its outcomes.
type End struct {
	// Err is how the call ended; nil where the response was complete. Outcomes that
	// arrived before a failure stand.
	Err error
	// Answered: at least one response arrived.
	Answered bool
	// Cookies are routing cookies to hand to the next attempt at what failed.
	Cookies metadata.MD
	// Matched says that the condition of MutateUnless yielded a cell: nothing was applied.
	Matched bool
	// RateLimit is the last the service sent; nil where it sent none.
	RateLimit *RateLimit
}

// RateLimit asks a client to multiply its load by Factor and to leave it so for
// Period (google.bigtable.v2.RateLimitInfo). Neither is checked.
type RateLimit struct {
	Period time.Duration
	Factor float64
}

// MutateRows makes one attempt to apply the entries and sets errs[i], for each of
// them: nil means applied; an entry without an answer gets the call's error or
// ErrOmitted. An error of which nothing was sent is a *retry.NotSent. errs is as
// long as entries, which must not be empty. Each entry must have been measured by
// proto.Size since it was last changed: sizes are not counted again. A holder of guard
// may read errs meanwhile: ErrOmitted then says that an entry has no answer yet.
func (t *Table) MutateRows(ctx context.Context, cc grpc.ClientConnInterface, entries []*bigtablepb.MutateRowsRequest_Entry, cookies metadata.MD, errs []error, guard sync.Locker) End {
	out := &outcomes{errs: errs, guard: guard}
	guard.Lock()
	for i := range errs {
		errs[i] = ErrOmitted
	}
	guard.Unlock()
	ctx = metadata.NewOutgoingContext(ctx, t.outgoing(cookies))
	stream, err := cc.NewStream(ctx, &mutateRows, bigtablepb.Bigtable_MutateRows_FullMethodName, useCodec)
	if err != nil {
		return out.fail(End{}, &retry.NotSent{Err: err})
	}
	if err := stream.SendMsg(&entriesOf{table: t, rows: entries}); err != nil && err != io.EOF { // EOF: the status comes with RecvMsg
		return out.fail(End{}, err)
	}
	if err := stream.CloseSend(); err != nil {
		return out.fail(End{}, err)
	}
	return out.receive(stream)
}

var mutateRows = grpc.StreamDesc{StreamName: "MutateRows", ServerStreams: true}

func (o *outcomes) receive(stream grpc.ClientStream) End {
	for {
		err := stream.RecvMsg(o)
		if err == nil {
			continue
		}
		end := End{Answered: o.answered, RateLimit: o.rate}
		if err != io.EOF {
			end = o.fail(end, err)
		}
		if end.Err != nil || o.failed {
			header, _ := stream.Header()
			end.Cookies = cookiesOf(header, stream.Trailer())
		}
		return end
	}
}

// fail gives the call's error to every entry that has no outcome.
func (o *outcomes) fail(end End, err error) End {
	o.guard.Lock()
	defer o.guard.Unlock()
	end.Err = err
	for i, e := range o.errs {
		if e == ErrOmitted {
			o.errs[i] = err
		}
	}
	return end
}

// MutateUnless makes one attempt to apply the mutations of row unless the filter
// yields a cell of it (CheckAndMutateRow). Both answers of the service are success.
func (t *Table) MutateUnless(ctx context.Context, cc grpc.ClientConnInterface, row *bigtablepb.MutateRowsRequest_Entry, unless *bigtablepb.RowFilter, cookies metadata.MD) End {
	ctx = metadata.NewOutgoingContext(ctx, t.outgoing(cookies))
	var header, trailer metadata.MD
	res := new(bigtablepb.CheckAndMutateRowResponse)
	err := cc.Invoke(ctx, bigtablepb.Bigtable_CheckAndMutateRow_FullMethodName, t.CheckAndMutate(row, unless),
		res, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		return End{Err: err, Cookies: cookiesOf(header, trailer)}
	}
	return End{Answered: true, Matched: res.GetPredicateMatched()}
}

// CheckAndMutate is the request that MutateUnless sends.
func (t *Table) CheckAndMutate(row *bigtablepb.MutateRowsRequest_Entry, unless *bigtablepb.RowFilter) *bigtablepb.CheckAndMutateRowRequest {
	table, view := t.target()
	return &bigtablepb.CheckAndMutateRowRequest{
		TableName: table, AuthorizedViewName: view, AppProfileId: t.profile, RowKey: row.GetRowKey(),
		PredicateFilter: unless, FalseMutations: row.GetMutations(),
	}
}
