package btrpc

import (
	"errors"
	"io"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// GenerateInitialChangeStreamPartitions implements the server of tests.
func (s *server) GenerateInitialChangeStreamPartitions(r *bigtablepb.GenerateInitialChangeStreamPartitionsRequest, st bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
	return s.partitions(r, st)
}

// ReadChangeStream implements the server of tests.
func (s *server) ReadChangeStream(r *bigtablepb.ReadChangeStreamRequest, st bigtablepb.Bigtable_ReadChangeStreamServer) error {
	return s.changes(r, st)
}

func unbounded() *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{}, EndKey: &bigtablepb.RowRange_EndKeyOpen{}}
}

// checkHeader fails where the header does not address the table of tests.
func checkHeader(t *testing.T, md metadata.MD) {
	for name, want := range map[string]string{
		"x-goog-request-params":        table.header.Get("x-goog-request-params")[0],
		"google-cloud-resource-prefix": table.name,
		"bigtable-features":            features(),
	} {
		if got := md.Get(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestPartitionsOfATableAreReadWhole(t *testing.T) {
	fail := false
	cc := connect(t, &server{partitions: func(r *bigtablepb.GenerateInitialChangeStreamPartitionsRequest, st bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
		md, _ := metadata.FromIncomingContext(st.Context())
		checkHeader(t, md)
		if r.TableName != table.name || r.AppProfileId != table.profile {
			t.Errorf("%v", r)
		}
		for range 3 {
			if err := st.Send(&bigtablepb.GenerateInitialChangeStreamPartitionsResponse{Partition: &bigtablepb.StreamPartition{RowRange: unbounded()}}); err != nil {
				return err
			}
		}
		if fail {
			return status.Error(codes.Unavailable, "")
		}
		return nil
	}})
	if got, err := table.Partitions(t.Context(), cc); err != nil || len(got) != 3 {
		t.Errorf("%v %v", got, err)
	}
	fail = true
	if got, err := table.Partitions(t.Context(), cc); status.Code(err) != codes.Unavailable || got != nil {
		t.Errorf("a part of the partitions is returned as all of them: %v %v", got, err)
	}
}

// covers: CS-31
// stream-case: 1, 14
func TestChangesAreReadUntilTheStreamEnds(t *testing.T) {
	large := make([]byte, 5<<20) // grpc-go alone takes 4 MiB
	cc := connect(t, &server{changes: func(r *bigtablepb.ReadChangeStreamRequest, st bigtablepb.Bigtable_ReadChangeStreamServer) error {
		md, _ := metadata.FromIncomingContext(st.Context())
		checkHeader(t, md)
		if got := md.Get("x-goog-cbt-cookie-a"); len(got) != 1 || got[0] != "1" {
			t.Errorf("the cookie of the attempt before: %q", got)
		}
		bounds := r.GetPartition().GetRowRange()
		if r.TableName != table.name || r.AppProfileId != table.profile || bounds.GetStartKey() == nil || bounds.GetEndKey() == nil {
			t.Errorf("%v", r)
		}
		if err := st.Send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{
			DataChange: &bigtablepb.ReadChangeStreamResponse_DataChange{RowKey: large},
		}}); err != nil {
			return err
		}
		st.SetTrailer(metadata.Pairs("x-goog-cbt-cookie-b", "2"))
		return nil
	}})
	stream, err := table.ReadChanges(t.Context(), cc, &bigtablepb.ReadChangeStreamRequest{Partition: &bigtablepb.StreamPartition{RowRange: unbounded()}},
		metadata.Pairs("x-goog-cbt-cookie-a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if res, err := stream.Recv(); err != nil || len(res.GetDataChange().GetRowKey()) != len(large) {
		t.Fatalf("%v", err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if got := stream.Cookies().Get("x-goog-cbt-cookie-b"); len(got) != 1 || got[0] != "2" {
		t.Errorf("%q", got)
	}
}

func TestAClosedReadEndsAtTheService(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	cc := connect(t, &server{changes: func(_ *bigtablepb.ReadChangeStreamRequest, st bigtablepb.Bigtable_ReadChangeStreamServer) error {
		defer close(ended)
		close(began)
		<-st.Context().Done()
		return st.Context().Err()
	}})
	stream, err := table.ReadChanges(t.Context(), cc, &bigtablepb.ReadChangeStreamRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	stream.Close()
	stream.Close()
	<-ended
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if stream.Cookies() != nil {
		t.Error("cookies")
	}
}
