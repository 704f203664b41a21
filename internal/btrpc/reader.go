package btrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Reader opens the official client of an instance: its merging of rows and its
// resuming of broken streams are good. What it hides, a Watch shows. ctx must live as
// long as the client does.
func (d *Dialer) Reader(ctx context.Context, project, instance, appProfile string) (*bigtable.Client, error) {
	interceptor := grpc.WithChainStreamInterceptor(watch)
	opts := append(d.clientOptions(interceptor), option.WithGRPCConnectionPool(d.pool))
	if d.emulator != "" {
		conn, err := d.dialEmulator(interceptor)
		if err != nil {
			return nil, err
		}
		opts = []option.ClientOption{option.WithGRPCConn(conn)}
	}
	client, err := bigtable.NewClientWithConfig(ctx, project, instance, bigtable.ClientConfig{
		AppProfile: appProfile, MetricsProvider: bigtable.NoopMetricsProvider{},
		DisableSession: true, DisableDirectAccess: true, DisableDynamicChannelPool: true,
	}, opts...)
	if err != nil {
		return nil, fmt.Errorf("connecting to instance %s: %w", instance, err)
	}
	return client, nil
}

// Watch is what the official client neither takes nor gives of a read: a RowFilter as
// it is, how far rows are scanned that the filter hides, and which row is too large.
// It belongs to one ReadRows call at a time, whose attempts it follows.
type Watch struct {
	// Filter replaces the request's, where it is not nil. Read only.
	Filter *bigtablepb.RowFilter
	// Arrived is called, where it is not nil, with the first message of each attempt.
	Arrived func()
	// Scanned is called, where it is not nil, with each key up to which the service says
	// that it has read without a row, once the rows of before have been handed on: by the
	// goroutine that hands on rows. Where it returns false, the read ends.
	Scanned func(key string) bool
	// LargeRow is the key of the row over the 256 MiB that the service can read, at
	// which the call has ended. Empty: it ended otherwise.
	LargeRow string
	// Failed is the status of the last attempt that failed, by no doing of the caller's;
	// the client may have made another since. codes.OK: none has.
	Failed codes.Code
}

type watchKey struct{}

// Context returns the context to call ReadRows with.
func (w *Watch) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchKey{}, w)
}

// watch is the interceptor of all streams of a Reader, whose rows it also decodes.
func watch(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, append(slices.Clip(opts), useRowsCodec)...)
	w, _ := ctx.Value(watchKey{}).(*Watch)
	if w == nil {
		return stream, err
	}
	if err != nil {
		w.fail(ctx, err)
		return nil, err
	}
	return &watched{ClientStream: stream, w: w, callers: ctx}, nil
}

// fail notes why an attempt has failed; the end of a stream is no failure. gRPC refuses a
// call whose deadline has passed also before the timer of its context has run.
func (w *Watch) fail(ctx context.Context, err error) {
	deadline, bounded := ctx.Deadline()
	if over := ctx.Err() != nil || bounded && time.Until(deadline) <= 0; !over && !errors.Is(err, io.EOF) {
		w.Failed = status.Code(err)
	}
}

type watched struct {
	grpc.ClientStream
	w       *Watch
	callers context.Context // the stream's own ends with the stream
	arrived bool
	scanned string // of the message before; empty: handed on
}

// SendMsg puts the filter in.
func (s *watched) SendMsg(m any) error {
	if req, ok := m.(*bigtablepb.ReadRowsRequest); ok && s.w.Filter != nil {
		req.Filter = s.w.Filter
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg notes what passes. The client asks for a message when it has handed on the rows
// of the one before.
func (s *watched) RecvMsg(m any) error {
	if key := s.scanned; key != "" {
		if s.scanned = ""; !s.w.Scanned(key) {
			return status.Error(codes.Canceled, "the reader has stopped")
		}
	}
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.w.LargeRow = largeRow(err)
		s.w.fail(s.callers, err)
		return err
	}
	if !s.arrived && s.w.Arrived != nil {
		s.w.Arrived()
	}
	s.arrived = true
	if res, ok := m.(*bigtablepb.ReadRowsResponse); ok && s.w.Scanned != nil {
		s.scanned = string(res.LastScannedRowKey)
	}
	return nil
}

// largeRow reads the key out of the details that the service sends (as the Java client
// does, LargeReadRowsResumptionStrategy).
func largeRow(err error) string {
	st, ok := status.FromError(err)
	if !ok || len(st.Proto().GetDetails()) == 0 {
		return ""
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetReason() != "LargeRowReadError" {
			continue
		}
		if key, err := base64.StdEncoding.DecodeString(info.GetMetadata()["rowKeyBase64Encoded"]); err == nil {
			return string(key)
		}
	}
	return ""
}

// Sample is a key that lies between two tablets, or the end of the table where Key is
// empty. Bytes is about how much lies before it, from the start of the table; it never
// falls from one sample to the next.
type Sample struct {
	Key   string
	Bytes int64
}

// SampleRowKeys makes one attempt to sample the table's keys. Of a small table there
// may be none. The official client leaves the offsets out.
func (t *Table) SampleRowKeys(ctx context.Context, cc grpc.ClientConnInterface) ([]Sample, error) {
	table, view := t.target()
	stream, err := bigtablepb.NewBigtableClient(cc).SampleRowKeys(metadata.NewOutgoingContext(ctx, t.header),
		&bigtablepb.SampleRowKeysRequest{TableName: table, AuthorizedViewName: view, AppProfileId: t.profile})
	if err != nil {
		return nil, err
	}
	var samples []Sample
	for {
		res, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return samples, nil
		case err != nil:
			return nil, err
		}
		samples = append(samples, Sample{Key: string(res.GetRowKey()), Bytes: res.GetOffsetBytes()})
	}
}
