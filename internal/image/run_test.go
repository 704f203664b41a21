//go:build linux

package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

// enter makes $1 a root that cannot be written to, in a mount namespace of its own, and runs
// /functions in it as nobody. Each command replaces the one before it, so that a signal reaches
// the binary.
const enter = `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec chroot --userspec=65532:65532 "$1" /functions`

// emptyRoot returns a directory with the binary alone.
func emptyRoot(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("an empty root needs the right to mount: run this test as root")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("an empty root needs a mount namespace, which cannot be made here: %v: %s", err, out)
	}
	data, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // the tests' directories are closed to others
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "functions"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func inEmptyRoot(dir string, env ...string) (*exec.Cmd, *functest.Log) {
	log := &functest.Log{}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", enter, "sh", dir)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"), log, log
	return cmd, log
}

const writeOnly = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
write:
  format: json
  mappings:
    - name: order
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {status: event.status}}}]
`

// The binary needs nothing but itself: neither a shell, nor a file that it can write, nor a name
// for its user.
func TestTheBinaryServesInAnEmptyRootAsNobody(t *testing.T) {
	dir := emptyRoot(t)
	_, conn, addr := functest.BigtableOverTCP(t, emulator.Options{})
	_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"cf": {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	port := functest.FreePort(t)
	cmd, log := inEmptyRoot(dir, "PORT="+port, "FUNCTION_TARGET=write", "PIPELINE="+writeOnly, "BIGTABLE_EMULATOR_HOST="+addr, "GOMEMLIMIT=192MiB", "K_SERVICE=orders-write")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill(); <-exited })
	awaitServing(t, port, exited, log)

	body := functest.Delivery(t, "1", "2026-08-30T10:15:31Z", []byte(`{"id": "a", "status": "PAID"}`))
	resp, err := http.Post("http://127.0.0.1:"+port+"/", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("a delivery is answered %d: %s", resp.StatusCode, log)
	}
	if n := countRows(t, bigtablepb.NewBigtableClient(conn), "projects/my-project/instances/my-instance/tables/orders"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	checkConfined(t, cmd.Process.Pid)
	if want := `"version":"` + version + " (go"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not name the version with %q: %s", want, log)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-exited:
	case <-time.After(time.Minute):
		t.Fatalf("it runs a minute after SIGTERM: %s", log)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it exits with %d after SIGTERM: %s", code, log)
	}
}

func TestWithoutAPipelineTheBinarySaysWhatIsMissing(t *testing.T) {
	cmd, log := inEmptyRoot(emptyRoot(t), "FUNCTION_TARGET=write")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(log.String(), "neither PIPELINE (the YAML) nor PIPELINE_FILE (its path) is set") {
		t.Errorf("%v: %s", err, log)
	}
}

func awaitServing(t *testing.T, port string, exited <-chan struct{}, log fmt.Stringer) {
	t.Helper()
	for range 1200 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-exited:
			t.Fatalf("it ended: %s", log)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("it does not serve: %s", log)
}

// checkConfined checks what the kernel says of the process.
func checkConfined(t *testing.T, pid int) {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if status := read("status"); !strings.Contains(status, "\nUid:\t65532\t65532\t65532\t65532\n") || !strings.Contains(status, "\nGid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("the process is not nobody: %s", status)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil || len(files) != 1 || files[0].Name() != "functions" {
		t.Errorf("its root holds %v (%v), want the binary alone", files, err)
	}
	err = os.WriteFile(fmt.Sprintf("/proc/%d/root/new", pid), nil, 0o644)
	if err == nil || !strings.Contains(err.Error(), syscall.EROFS.Error()) {
		t.Errorf("writing to its root: %v, want %v", err, syscall.EROFS)
	}
}

func countRows(t *testing.T, client bigtablepb.BigtableClient, table string) int {
	t.Helper()
	stream, err := client.ReadRows(t.Context(), &bigtablepb.ReadRowsRequest{TableName: table})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Chunks {
			if c.GetCommitRow() {
				rows++
			}
		}
	}
}
