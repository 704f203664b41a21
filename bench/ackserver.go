package main

import (
	"bytes"
	"context"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ackServer acknowledges every write at once, but refuses a whole request for one bad
// row, whose place it names, as the service does.
type ackServer struct {
	bigtablepb.UnimplementedBigtableServer
	addr    string
	grpc    *grpc.Server
	serving sync.WaitGroup
	delay   atomic.Int64 // of each answer, in nanoseconds
}

func startAckServer() (*ackServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &ackServer{addr: l.Addr().String(), grpc: grpc.NewServer(grpc.MaxRecvMsgSize(256 << 20))}
	bigtablepb.RegisterBigtableServer(s.grpc, s)
	s.serving.Go(func() {
		if err := s.grpc.Serve(l); err != nil {
			log.Print(err)
		}
	})
	return s, nil
}

func (s *ackServer) stop() {
	s.grpc.Stop()
	s.serving.Wait()
}

var (
	badMark = []byte("#bad-")
	applied = &statuspb.Status{}
)

func (s *ackServer) MutateRow(_ context.Context, r *bigtablepb.MutateRowRequest) (*bigtablepb.MutateRowResponse, error) {
	if bytes.Contains(r.RowKey, badMark) {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'row' : refused")
	}
	s.wait()
	return &bigtablepb.MutateRowResponse{}, nil
}

func (s *ackServer) MutateRows(r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
	response := &bigtablepb.MutateRowsResponse{Entries: make([]*bigtablepb.MutateRowsResponse_Entry, len(r.Entries))}
	for i, e := range r.Entries {
		if bytes.Contains(e.RowKey, badMark) {
			return status.Errorf(codes.InvalidArgument, "Error in field 'Entry list' : Error in element #%d : refused", i)
		}
		response.Entries[i] = &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: applied}
	}
	s.wait()
	return out.Send(response)
}

func (s *ackServer) wait() {
	if d := s.delay.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
}

// PingAndWarm is what the official client asks before its first request.
func (s *ackServer) PingAndWarm(context.Context, *bigtablepb.PingAndWarmRequest) (*bigtablepb.PingAndWarmResponse, error) {
	return &bigtablepb.PingAndWarmResponse{}, nil
}
