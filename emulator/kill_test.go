package emulator_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// childDir makes the test binary an emulator that keeps its data there.
const childDir = "EMULATOR_TEST_DATA_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := serveChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveChild serves until it is killed. Its snapshots are so frequent that
// the kill often comes during one.
func serveChild(dir string) error {
	e, err := emulator.New(emulator.Options{DataDir: dir, SnapshotBytes: 64 << 10})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return e.Serve(l)
}

// ledger is what the parent knows of its writes.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]bool // row keys
	failed map[string]bool // sent, outcome unknown
	added  int64           // acknowledged increments
	tried  int64           // sent increments
}

func startChild(t *testing.T, dir string) (*exec.Cmd, *grpc.ClientConn) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("the child did not start: ", err)
	}
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimSpace(addr), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, conn
}

// writeUntilKilled writes batches of two-cell rows, a row that is refused, and
// increments, until the child is dead.
func (l *ledger) writeUntilKilled(ctx context.Context, data bigtablepb.BigtableClient, writer string, acks *atomic.Int64) {
	for n := 0; ; n++ {
		var keys []string
		req := &bigtablepb.MutateRowsRequest{TableName: tableT}
		for i := range 20 {
			key := fmt.Sprintf("%s-%06d-%02d", writer, n, i)
			keys = append(keys, key)
			req.Entries = append(req.Entries, entry(key, setCell("a", "q", 0, []byte(key)), setCell("b", "q", 0, []byte(key))))
		}
		entries, err := mutate(ctx, data, req)
		l.mu.Lock()
		for i, key := range keys {
			if err == nil && entries[i].Status.Code == 0 {
				l.acked[key] = true
			} else {
				l.failed[key] = true
			}
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
		bad := entry("refused-"+keys[0], setCell("a", "q", 0, nil), setCell("a", "q", -2, nil))
		if _, err := mutate(ctx, data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("refused-neighbour-"+keys[0], "a", "v"), bad}}); err == nil {
			return // never: the check finds the rows
		}
		atomic.AddInt64(&l.tried, 1)
		_, err = data.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("counter"),
			Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "a", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
		if err != nil {
			return
		}
		atomic.AddInt64(&l.added, 1)
		acks.Add(1)
	}
}

// check opens the data directory and compares.
func (l *ledger) check(t *testing.T, dir string) {
	t.Helper()
	e, err := emulator.New(emulator.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	conn, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := read(t.Context(), bigtablepb.NewBigtableClient(conn), &bigtablepb.ReadRowsRequest{TableName: tableT,
		Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range rows {
		key, cells, _ := strings.Cut(row, " ")
		if key == "counter" {
			n := int64(0)
			for _, b := range []byte(cells[len(cells)-8:]) {
				n = n<<8 | int64(b)
			}
			if n < l.added || n > l.tried {
				t.Fatalf("the counter is %d: %d increments were acknowledged of %d", n, l.added, l.tried)
			}
			continue
		}
		if want := fmt.Sprintf("a:q@0=%s b:q@0=%s", key, key); cells != want {
			t.Fatalf("a row is torn: %s", row)
		}
		if l.acked[key] {
			found++
		} else if !l.failed[key] {
			t.Fatalf("a row that was refused or never sent is there: %s", key)
		}
	}
	if found != len(l.acked) {
		t.Fatalf("%d of %d acknowledged rows are lost", len(l.acked)-found, len(l.acked))
	}
	t.Logf("%d rows acknowledged, all there; %d in flight when the process died", found, len(l.failed))
}

func TestNothingAcknowledgedIsLostToKill9AndNothingRefusedAppears(t *testing.T) {
	rounds := 20
	if os.Getenv("BTF_SOAK") != "" {
		rounds = 1000
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { killRound(t, uint64(round)) })
	}
}

// killRound kills the child twice, so that the second one has a recovered
// journal to go on with.
func killRound(t *testing.T, seed uint64) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(seed, 0))
	l := &ledger{acked: map[string]bool{}, failed: map[string]bool{}}
	for life := range 2 {
		cmd, conn := startChild(t, dir)
		if life == 0 {
			_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "t",
				Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}, "b": {}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var writers sync.WaitGroup
		var acks atomic.Int64
		for w := range 4 {
			writers.Go(func() {
				l.writeUntilKilled(ctx, bigtablepb.NewBigtableClient(conn), fmt.Sprintf("w%d-%d", life, w), &acks)
			})
		}
		for enough := 5 + random.Int64N(60); acks.Load() < enough && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // pacing of the kill only: any moment will do
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		writers.Wait()
		cancel()
		_ = cmd.Wait() // says that it was killed
		conn.Close()
		if acks.Load() == 0 {
			t.Fatal("nothing was written")
		}
		l.check(t, dir)
	}
}
