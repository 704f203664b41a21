package emulator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// server is one of the two that are compared, over TCP.
type server struct {
	name  string
	start func(b testing.TB) *grpc.ClientConn
}

func dialTCP(b testing.TB, addr string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(256<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

func startBttest(b testing.TB) *grpc.ClientConn {
	s, err := bttest.NewServer("127.0.0.1:0", grpc.MaxRecvMsgSize(256<<20), grpc.MaxSendMsgSize(256<<20))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	return dialTCP(b, s.Addr)
}

func startOurs(opts emulator.Options) func(b testing.TB) *grpc.ClientConn {
	return func(b testing.TB) *grpc.ClientConn {
		if opts.DataDir != "" {
			opts.DataDir = b.TempDir()
		}
		e, err := emulator.New(opts)
		if err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- e.Serve(l) }()
		b.Cleanup(func() {
			e.Close()
			<-served
		})
		return dialTCP(b, l.Addr().String())
	}
}

// servers have the change stream, and so the log, on; ours once more with the
// journal.
var servers = []server{
	{"bttest", startBttest},
	{"emulator", startOurs(emulator.Options{})},
	{"emulator+journal", startOurs(emulator.Options{DataDir: "temp"})},
}

func createStreamed(b testing.TB, conn *grpc.ClientConn) {
	_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(b.Context(), &adminpb.CreateTableRequest{
		Parent: instance, TableId: "t", Table: &adminpb.Table{
			ColumnFamilies:     map[string]*adminpb.ColumnFamily{"a": {}},
			ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
		}})
	if err != nil {
		b.Fatal(err)
	}
}

func batch(first, n int) *bigtablepb.MutateRowsRequest {
	value := make([]byte, 100)
	req := &bigtablepb.MutateRowsRequest{TableName: tableT}
	for i := range n {
		req.Entries = append(req.Entries, &bigtablepb.MutateRowsRequest_Entry{
			RowKey:    fmt.Appendf(nil, "row%09d", first+i),
			Mutations: []*bigtablepb.Mutation{setCell("a", "q", 1000, value)},
		})
	}
	return req
}

func setCell(family, qualifier string, ts int64, value []byte) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: ts, Value: value,
	}}}
}

func mutate(ctx context.Context, data bigtablepb.BigtableClient, req *bigtablepb.MutateRowsRequest) ([]*bigtablepb.MutateRowsResponse_Entry, error) {
	stream, err := data.MutateRows(ctx, req)
	if err != nil {
		return nil, err
	}
	var entries []*bigtablepb.MutateRowsResponse_Entry
	for {
		res, err := stream.Recv()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, res.Entries...)
	}
}

// BenchmarkMutateRows writes batches of 1,000 new rows of one 100-byte cell.
func BenchmarkMutateRows(b *testing.B) {
	for _, s := range servers {
		b.Run(s.name, func(b *testing.B) {
			conn := s.start(b)
			createStreamed(b, conn)
			data := bigtablepb.NewBigtableClient(conn)
			n := 0
			for b.Loop() {
				if _, err := mutate(b.Context(), data, batch(n, 1000)); err != nil {
					b.Fatal(err)
				}
				n += 1000
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
		})
	}
}

const scanRows = 100_000

func fill(b testing.TB, data bigtablepb.BigtableClient, rows int) {
	for i := 0; i < rows; i += 10_000 {
		if _, err := mutate(b.Context(), data, batch(i, min(10_000, rows-i))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstRow is the time to the first row of a scan of 100,000.
func BenchmarkFirstRow(b *testing.B) {
	for _, s := range servers[:2] {
		b.Run(s.name, func(b *testing.B) {
			conn := s.start(b)
			createStreamed(b, conn)
			data := bigtablepb.NewBigtableClient(conn)
			fill(b, data, scanRows)
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				stream, err := data.ReadRows(ctx, &bigtablepb.ReadRowsRequest{TableName: tableT})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					b.Fatal(err)
				}
				cancel()
			}
		})
	}
}

// BenchmarkScan reads 100,000 rows.
func BenchmarkScan(b *testing.B) {
	for _, s := range servers[:2] {
		b.Run(s.name, func(b *testing.B) {
			conn := s.start(b)
			createStreamed(b, conn)
			data := bigtablepb.NewBigtableClient(conn)
			fill(b, data, scanRows)
			for b.Loop() {
				stream, err := data.ReadRows(b.Context(), &bigtablepb.ReadRowsRequest{TableName: tableT})
				if err != nil {
					b.Fatal(err)
				}
				rows := 0
				for {
					res, err := stream.Recv()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					for _, c := range res.Chunks {
						if c.GetCommitRow() {
							rows++
						}
					}
				}
				if rows != scanRows {
					b.Fatal(rows)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/scanRows, "ns/row")
		})
	}
}

// BenchmarkStart is the time until a new emulator has answered a request.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e, err := emulator.New(emulator.Options{})
		if err != nil {
			b.Fatal(err)
		}
		conn, err := e.Dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bigtablepb.NewBigtableClient(conn).PingAndWarm(b.Context(), &bigtablepb.PingAndWarmRequest{Name: instance}); err != nil {
			b.Fatal(err)
		}
		conn.Close()
		e.Close()
	}
}

// BenchmarkMemory reports the heap that a row with one 100-byte cell takes.
func BenchmarkMemory(b *testing.B) {
	for _, s := range servers[:2] {
		b.Run(s.name, func(b *testing.B) {
			conn := s.start(b)
			_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(b.Context(), &adminpb.CreateTableRequest{
				Parent: instance, TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}}}})
			if err != nil {
				b.Fatal(err)
			}
			before := heap()
			fill(b, bigtablepb.NewBigtableClient(conn), scanRows)
			b.ReportMetric((heap()-before)/scanRows, "B/row")
		})
	}
}

// heap is the bytes of the heap that are in use after a collection.
func heap() float64 {
	runtime.GC() // twice: objects in pools survive the first
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
