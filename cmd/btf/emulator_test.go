package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// runningEmulator is `btf emulator` in this process.
type runningEmulator struct {
	host, control string
	stdout        []string // what it has printed by the time it serves
	stderr        output
	stop          func() error
}

func startEmulator(t *testing.T, args ...string) *runningEmulator {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &runningEmulator{}
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		cmd := emulatorCommand()
		cmd.SetArgs(append([]string{"--port", "0", "--control-port", "0"}, args...))
		cmd.SetOut(in)
		cmd.SetErr(&e.stderr)
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(io.EOF)
		done <- err
	}()
	e.stop = func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { e.stop() })
	lines := bufio.NewScanner(out)
	for e.host == "" && lines.Scan() {
		e.stdout = append(e.stdout, lines.Text())
		if control, ok := strings.CutPrefix(lines.Text(), "BIGTABLE_EMULATOR_CONTROL="); ok {
			e.control = control
		}
		if host, ok := strings.CutPrefix(lines.Text(), "BIGTABLE_EMULATOR_HOST="); ok {
			e.host = host
		}
	}
	if e.host == "" {
		t.Fatal("the emulator did not start: ", e.stop())
	}
	return e
}

func (e *runningEmulator) admin(t *testing.T, host string) adminpb.BigtableTableAdminClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return adminpb.NewBigtableTableAdminClient(conn)
}

// covers: EMU-01, EMU-12
func TestTheEmulatorCommandServesTheTablesItWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	e := startEmulator(t, "--data-dir", dir, "--table", "orders:cf,audit;splits=g,p;stream=24h", "--table", "plain", "--project", "p", "--instance", "i")
	name := "projects/p/instances/i/tables/orders"
	table, err := e.admin(t, e.host).GetTable(t.Context(), &adminpb.GetTableRequest{Name: name})
	if err != nil || len(table.ColumnFamilies) != 2 || table.ChangeStreamConfig.GetRetentionPeriod().AsDuration() != 24*time.Hour {
		t.Errorf("%v, %v", table, err)
	}
	res, err := http.Get(e.control + "/v1/tablets?table=" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || strings.Count(string(body), `"id"`) != 3 {
		t.Errorf("tablets: %s, %v", body, err)
	}
	if _, err := e.admin(t, e.host).CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: "later", Table: &adminpb.Table{}}); err != nil {
		t.Fatal(err)
	}
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	again := startEmulator(t, "--data-dir", dir, "--table", "orders:other", "--project", "p", "--instance", "i")
	tables, err := again.admin(t, again.host).ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: "projects/p/instances/i"})
	if err != nil || len(tables.Tables) != 3 {
		t.Errorf("after a restart: %v, %v", tables, err)
	}
}

// covers: EMU-01
func TestTheEmulatorCommandSaysWhatATableThatExistsIsNot(t *testing.T) {
	dir := t.TempDir()
	e := startEmulator(t, "--data-dir", dir, "--table", "orders:cf,audit;splits=g,p;stream=24h", "--table", "same:cf;splits=m")
	if text := e.stderr.String(); text != "" {
		t.Errorf("it says %q", text)
	}
	if len(e.stdout) != 2 || e.stdout[0] != "BIGTABLE_EMULATOR_CONTROL="+e.control || e.stdout[1] != "BIGTABLE_EMULATOR_HOST="+e.host {
		t.Errorf("it prints %q", e.stdout)
	}
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	again := startEmulator(t, "--data-dir", dir, "--table", "orders:cf,more;splits=g,x;stream=48h", "--table", "same:cf;splits=m")
	want := "table orders exists and stays as it is, which is not as --table says: it has no family more, it is not split at \"x\", its stream keeps 24h0m0s\n"
	if text := again.stderr.String(); text != want {
		t.Errorf("it says %q, want %q", text, want)
	}
}

func TestTheEmulatorListensOnIPv4AndIPv6(t *testing.T) {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	probe.Close()
	e := startEmulator(t, "--table", "t")
	host, port, err := net.SplitHostPort(e.host)
	if err != nil || host != "localhost" {
		t.Fatal(e.host, err)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if _, err := e.admin(t, net.JoinHostPort(ip, port)).ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: "projects/local/instances/local"}); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	for _, args := range [][]string{{"--port", port}, {"--port", "0", "--control-port", port}} {
		cmd := emulatorCommand()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "port "+port+" is taken") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestATableThatCannotBeMadeIsNamed(t *testing.T) {
	var stderr bytes.Buffer
	cmd := emulatorCommand()
	cmd.SetArgs(slices.Concat([]string{"--port", "0"}, []string{"--table", "t:no such family"}))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetErr(&stderr)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "creating table t") {
		t.Error(err)
	}
}
