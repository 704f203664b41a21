package btrpc

import (
	"context"
	"errors"
	"io"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Partitions makes one attempt to read the partitions that the table's change stream has
// now. The service may be asked at any time, not only at the beginning.
func (t *Table) Partitions(ctx context.Context, cc grpc.ClientConnInterface) ([]*bigtablepb.RowRange, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := bigtablepb.NewBigtableClient(cc).GenerateInitialChangeStreamPartitions(metadata.NewOutgoingContext(ctx, t.header),
		&bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: t.name, AppProfileId: t.profile})
	if err != nil {
		return nil, err
	}
	var out []*bigtablepb.RowRange
	for {
		res, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, res.GetPartition().GetRowRange())
	}
}

// ChangeStream is one attempt to read the changes of one partition. It is for one
// goroutine, but for Close.
type ChangeStream struct {
	stream   bigtablepb.Bigtable_ReadChangeStreamClient
	cancel   context.CancelFunc
	response bigtablepb.ReadChangeStreamResponse // the last one
}

// ReadChanges begins to read changes. It sets the table and the application profile of
// req, which says the rest. The caller must Close the stream. The stream ends with ctx
// as well.
func (t *Table) ReadChanges(ctx context.Context, cc grpc.ClientConnInterface, req *bigtablepb.ReadChangeStreamRequest, cookies metadata.MD) (*ChangeStream, error) {
	req.TableName, req.AppProfileId = t.name, t.profile
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, t.outgoing(cookies)))
	stream, err := bigtablepb.NewBigtableClient(cc).ReadChangeStream(ctx, req, useChangesCodec())
	if err != nil {
		cancel()
		return nil, err
	}
	return &ChangeStream{stream: stream, cancel: cancel}, nil
}

// Recv returns the next response. io.EOF means that the service has ended the stream
// without an error; the response before says whether it was complete. A response is good
// until the next call of Recv. Its row key and its values, and a close, are so for ever.
func (s *ChangeStream) Recv() (*bigtablepb.ReadChangeStreamResponse, error) {
	if err := s.stream.RecvMsg(&s.response); err != nil {
		return nil, err
	}
	return &s.response, nil
}

// Cookies are those to hand to the next attempt, once Recv has returned an error.
func (s *ChangeStream) Cookies() metadata.MD {
	header, _ := s.stream.Header() // empty where there is none
	return cookiesOf(header, s.stream.Trailer())
}

// Close ends the stream, if it has not ended. It may be called at any time, more than
// once.
func (s *ChangeStream) Close() { s.cancel() }
