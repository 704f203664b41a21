package writer

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// raw is a codec that leaves messages as bytes, so that the server costs little.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*mem.BufferSlice) = data
	data.Ref()
	return nil
}

// acknowledge applies nothing and says at once that it has; where it may refuse, it does
// so for a whole call that holds a row key that starts with x.
type acknowledge struct {
	calls, entries atomic.Int64
	refuse         bool
}

func (a *acknowledge) handle(_ any, s grpc.ServerStream) error {
	var data mem.BufferSlice
	if err := s.RecvMsg(&data); err != nil {
		return err
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	n, refused := 0, -1
	for b := buf.ReadOnlyData(); len(b) > 0; {
		num, typ, l := protowire.ConsumeTag(b)
		b = b[l:]
		value := b[:protowire.ConsumeFieldValue(num, typ, b)]
		b = b[len(value):]
		if num == 2 {
			if refused < 0 && a.refuse && startsWithX(value) {
				refused = n
			}
			n++
		}
	}
	buf.Free()
	data.Free()
	a.calls.Add(1)
	a.entries.Add(int64(n))
	if refused >= 0 {
		return status.Errorf(codes.InvalidArgument, "Error in field 'Entry list' : Error in element #%d", refused)
	}
	var out []byte
	for i := range n {
		e := protowire.AppendVarint([]byte{0x08}, uint64(i))
		out = protowire.AppendVarint(append(out, 0x0a), uint64(len(e)))
		out = append(out, e...)
	}
	return s.SendMsg(out)
}

// startsWithX looks at the row key, the first field of an entry.
func startsWithX(entry []byte) bool {
	entry, _ = protowire.ConsumeBytes(entry)
	key, n := protowire.ConsumeBytes(entry[1:])
	return n > 0 && key[0] == 'x'
}

// listen serves a over l and returns a dialer.
func (a *acknowledge) listen(b *testing.B, l net.Listener, dial func(context.Context, string) (net.Conn, error)) func(context.Context, string, string) (Conn, error) {
	g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(1<<28), grpc.UnknownServiceHandler(a.handle))
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	b.Cleanup(func() { g.Stop(); <-done })
	return func(context.Context, string, string) (Conn, error) {
		opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if dial != nil {
			opts = append(opts, grpc.WithContextDialer(dial))
		}
		return grpc.NewClient("passthrough:///"+l.Addr().String(), opts...)
	}
}

func (a *acknowledge) tcp(b *testing.B) func(context.Context, string, string) (Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return a.listen(b, l, nil)
}

func (a *acknowledge) bufconn(b *testing.B) func(context.Context, string, string) (Conn, error) {
	l := bufconn.Listen(1 << 20)
	return a.listen(b, l, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

func benchEntry(i int) Entry {
	e := set(fmt.Sprintf("order#acme#%08d", i))
	for range 4 {
		e.Row.Mutations = append(e.Row.Mutations, setCell("cf", 1000))
	}
	return e
}

func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// measure reports CPU for each entry, the server's share included, and entries a call.
func measure(b *testing.B, a *acknowledge, per int, run func()) {
	b.ReportAllocs()
	before := cpu(b)
	b.ResetTimer()
	run()
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N*per), "cpu-ns/entry")
	b.ReportMetric(float64(a.entries.Load())/float64(max(1, a.calls.Load())), "entries/call")
}

// BenchmarkApply is 64 requests at a time.
func BenchmarkApply(b *testing.B) {
	for _, per := range []int{1, 500} {
		for _, wire := range []string{"bufconn", "tcp"} {
			b.Run(fmt.Sprintf("entries=%d/%s", per, wire), func(b *testing.B) {
				a := &acknowledge{}
				dial := a.tcp
				if wire == "bufconn" {
					dial = a.bufconn
				}
				w, err := New(config(dial(b)))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = w.Close(context.Background()) }()
				entries := make([]Entry, per)
				for i := range entries {
					entries[i] = benchEntry(i)
				}
				measure(b, a, per, func() {
					b.SetParallelism(32) // times GOMAXPROCS
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							for _, err := range w.Apply(context.Background(), entries) {
								if err != nil {
									b.Error(err)
									return
								}
							}
						}
					})
				})
			})
		}
	}
}

// BenchmarkStub is the floor: the generated client, 500 entries a call, 4 at a time.
func BenchmarkStub(b *testing.B) {
	a := &acknowledge{}
	conn, err := a.tcp(b)(context.Background(), "", "")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := bigtablepb.NewBigtableClient(conn)
	req := &bigtablepb.MutateRowsRequest{TableName: orders.String()}
	for i := range 500 {
		req.Entries = append(req.Entries, benchEntry(i).Row)
	}
	measure(b, a, 500, func() {
		b.SetParallelism(2)
		b.RunParallel(func(pb *testing.PB) {
			req := proto.Clone(req).(*bigtablepb.MutateRowsRequest)
			for pb.Next() {
				stream, err := client.MutateRows(context.Background(), req)
				for err == nil {
					_, err = stream.Recv()
				}
			}
		})
	})
}

// BenchmarkBad is 64 requests at a time, some of whose entries are refused: the service
// refuses the whole call for one of them.
func BenchmarkBad(b *testing.B) {
	for _, per := range []int{1, 500} {
		for _, share := range []int{0, 1000, 100, 10} { // one in so many
			b.Run(fmt.Sprintf("entries=%d/bad=1:%d", per, share), func(b *testing.B) {
				a := &acknowledge{refuse: true}
				cfg := config(a.tcp(b))
				cfg.Limits.ConsecutiveRejections = 0
				w, err := New(cfg)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = w.Close(context.Background()) }()
				var n, caller atomic.Int64
				all := make([][]Entry, 32*runtime.GOMAXPROCS(0))
				for c := range all {
					for i := range per {
						all[c] = append(all[c], benchEntry(i))
					}
				}
				measure(b, a, per, func() {
					b.SetParallelism(32)
					b.RunParallel(func(pb *testing.PB) {
						entries := all[int(caller.Add(1)-1)%len(all)]
						for pb.Next() {
							for i := range entries {
								key := entries[i].Row.RowKey
								if key[0] = 'o'; share > 0 && n.Add(1)%int64(share) == 0 {
									key[0] = 'x'
								}
							}
							for i, err := range w.Apply(context.Background(), entries) {
								if retry.IsRejected(err) != (entries[i].Row.RowKey[0] == 'x') {
									b.Error(err)
									return
								}
							}
						}
					})
				})
			})
		}
	}
}
