package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// emulatorFlags are the flags of `btf emulator`.
type emulatorFlags struct {
	port, controlPort int
	dataDir           string
	fsync             bool
	gcInterval        time.Duration
	project, instance string
	tables            []string

	strictInstances, enforceIAM bool
}

func emulatorCommand() *cobra.Command {
	var f emulatorFlags
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Run a Bigtable on this machine",
		Long: `Run a Bigtable on this machine, for any language's client. Set BIGTABLE_EMULATOR_HOST
to what it prints. Projects and instances need not be created. It has no authentication
and listens on localhost only. docs/emulator.md says how it differs from the service.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runEmulator(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.port, "port", 8086, "port for Bigtable clients; 0 takes a free one")
	flags.IntVar(&f.controlPort, "control-port", -1, "port for faults, clock and tablets over HTTP; 0 takes a free one, -1 is none")
	flags.StringVar(&f.dataDir, "data-dir", "", "directory that keeps the data; without it nothing outlives the process")
	flags.BoolVar(&f.fsync, "fsync", false, "wait for the disk before a write is acknowledged, so that it survives a loss of power")
	flags.DurationVar(&f.gcInterval, "gc-interval", time.Minute, "how often garbage collection runs; 0 is only when asked")
	flags.BoolVar(&f.strictInstances, "strict-instances", false, "refuse requests to an instance that was not created; that of --table is created")
	flags.BoolVar(&f.enforceIAM, "enforce-iam", false, "refuse what IAM policies do not allow to the principal that the header "+emulator.PrincipalHeader+" of a call names")
	flags.StringVar(&f.project, "project", "local", "project of the tables made by --table")
	flags.StringVar(&f.instance, "instance", "local", "instance of the tables made by --table")
	flags.StringArrayVar(&f.tables, "table", nil, "create a table unless it exists, and then leave it as it is: 'name:cf,cf2;splits=a,m;stream=24h' (repeatable)")
	return cmd
}

// runEmulator serves until ctx is done. It prints the addresses, that for
// clients last, only when they can connect and the tables are there.
func runEmulator(ctx context.Context, f emulatorFlags, stdout, stderr io.Writer) (err error) {
	tables, err := parseTables(f)
	if err != nil {
		return err
	}
	e, err := emulator.New(emulator.Options{
		DataDir:         f.dataDir,
		Fsync:           f.fsync,
		GCInterval:      f.gcInterval,
		StrictInstances: f.strictInstances,
		EnforceIAM:      f.enforceIAM,
		Logger:          slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := createTables(ctx, e, tables, f.strictInstances, stderr); err != nil {
		return err
	}
	listeners, err := listenLocal(ctx, f.port)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if f.controlPort >= 0 {
		control, err := listenLocal(ctx, f.controlPort)
		if err != nil {
			closeAll(listeners)
			return err
		}
		serveControl(ctx, g, e, control)
		fmt.Fprintf(stdout, "BIGTABLE_EMULATOR_CONTROL=http://%s\n", localHost(control))
	}
	for _, l := range listeners {
		g.Go(func() error { return e.Serve(l) })
	}
	g.Go(func() error {
		<-ctx.Done()
		return e.Close()
	})
	fmt.Fprintf(stdout, "BIGTABLE_EMULATOR_HOST=%s\n", localHost(listeners))
	return g.Wait()
}

// localHost is the address that clients are to use: "localhost" where it is
// served over IPv4 and IPv6, else the one address there is.
func localHost(listeners []net.Listener) string {
	addr := listeners[0].Addr().String()
	if _, port, err := net.SplitHostPort(addr); err == nil && len(listeners) == 2 {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}

func serveControl(ctx context.Context, g *errgroup.Group, e *emulator.Emulator, listeners []net.Listener) {
	server := &http.Server{Handler: e.Control(), ReadHeaderTimeout: 10 * time.Second}
	for _, l := range listeners {
		g.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the control API: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
}

// portTries is how often a free port is looked for that is free in both
// address families.
const portTries = 20

// listenLocal listens on a port of localhost, over IPv4 and, where the
// machine has it, IPv6.
func listenLocal(ctx context.Context, port int) ([]net.Listener, error) {
	for try := 1; ; try++ {
		listeners, err := listenBoth(ctx, port)
		if err == nil || port != 0 || try == portTries {
			return listeners, err
		}
	}
}

func listenBoth(ctx context.Context, port int) ([]net.Listener, error) {
	var lc net.ListenConfig
	v4, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, portError(port, err)
	}
	chosen := v4.Addr().(*net.TCPAddr).Port
	v6, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(chosen)))
	if errors.Is(err, syscall.EADDRINUSE) {
		v4.Close()
		return nil, portError(chosen, err)
	}
	if err != nil { // no IPv6 here
		return []net.Listener{v4}, nil
	}
	return []net.Listener{v4, v6}, nil
}

func portError(port int, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is taken: choose another, or 0 for a free one", port)
	}
	return fmt.Errorf("listening on port %d: %w", port, err)
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

func parseTables(f emulatorFlags) ([]*adminpb.CreateTableRequest, error) {
	var reqs []*adminpb.CreateTableRequest
	for _, spec := range f.tables {
		req, err := parseTable(spec)
		if err != nil {
			return nil, fmt.Errorf("--table %q: %w", spec, err)
		}
		req.Parent = "projects/" + f.project + "/instances/" + f.instance
		reqs = append(reqs, req)
	}
	return reqs, nil
}

// parseTable reads 'name:cf,cf2;splits=a,m;stream=24h', of which all but the
// name may be missing.
func parseTable(spec string) (*adminpb.CreateTableRequest, error) {
	head, options, _ := strings.Cut(spec, ";")
	name, families, _ := strings.Cut(head, ":")
	if name == "" {
		return nil, errors.New("a table needs a name: 'name:family,family;splits=key,key;stream=24h'")
	}
	req := &adminpb.CreateTableRequest{TableId: name, Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{}}}
	for _, family := range list(families) {
		req.Table.ColumnFamilies[family] = &adminpb.ColumnFamily{}
	}
	if options == "" {
		return req, nil
	}
	for option := range strings.SplitSeq(options, ";") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "splits":
			for _, split := range list(value) {
				req.InitialSplits = append(req.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(split)})
			}
		case "stream":
			d, err := time.ParseDuration(value)
			if err != nil {
				return nil, fmt.Errorf("stream=%s is not a duration such as 24h", value)
			}
			req.Table.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(d)}
		default:
			return nil, fmt.Errorf("unknown option %q: there are splits and stream", key)
		}
	}
	return req, nil
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// createInstance creates an instance with one cluster unless it exists.
func createInstance(ctx context.Context, conn grpc.ClientConnInterface, name string) error {
	project, id, _ := strings.Cut(name, "/instances/")
	_, err := adminpb.NewBigtableInstanceAdminClient(conn).CreateInstance(ctx, &adminpb.CreateInstanceRequest{
		Parent: project, InstanceId: id, Instance: &adminpb.Instance{DisplayName: id},
		Clusters: map[string]*adminpb.Cluster{emulator.Cluster: {Location: project + "/locations/local", ServeNodes: 1}},
	})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("creating instance %s: %w", id, err)
	}
	return nil
}

// createTables creates the tables that are not in the data directory already,
// and their instance if none exists by itself.
// Those stay as they are; where that is not as asked for, stderr is told.
func createTables(ctx context.Context, e *emulator.Emulator, reqs []*adminpb.CreateTableRequest, strict bool, stderr io.Writer) error {
	conn, err := e.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, req := range reqs {
		if strict {
			if err := createInstance(ctx, conn, req.Parent); err != nil {
				return err
			}
		}
		_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(ctx, req)
		if status.Code(err) == codes.AlreadyExists {
			var lacks []string
			if lacks, err = missing(ctx, conn, req); len(lacks) > 0 {
				fmt.Fprintf(stderr, "table %s exists and stays as it is, which is not as --table says: %s\n", req.TableId, strings.Join(lacks, ", "))
			}
		}
		if err != nil {
			return fmt.Errorf("creating table %s: %w", req.TableId, err)
		}
	}
	return nil
}

// missing says what a table that exists lacks of a request to create it. More
// families and splits than asked for are none of it: a table gets those.
func missing(ctx context.Context, conn grpc.ClientConnInterface, req *adminpb.CreateTableRequest) ([]string, error) {
	name := req.Parent + "/tables/" + req.TableId
	table, err := adminpb.NewBigtableTableAdminClient(conn).GetTable(ctx, &adminpb.GetTableRequest{Name: name, View: adminpb.Table_FULL})
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, family := range slices.Sorted(maps.Keys(req.Table.ColumnFamilies)) {
		if table.ColumnFamilies[family] == nil {
			lacks = append(lacks, "it has no family "+family)
		}
	}
	bounds, err := boundaries(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	for _, split := range req.InitialSplits {
		if !bounds[string(split.Key)] {
			lacks = append(lacks, fmt.Sprintf("it is not split at %q", split.Key))
		}
	}
	if asked := req.Table.ChangeStreamConfig.GetRetentionPeriod().AsDuration(); asked != 0 {
		if has := table.ChangeStreamConfig.GetRetentionPeriod().AsDuration(); has != asked {
			lacks = append(lacks, fmt.Sprintf("its stream keeps %s", has))
		}
	}
	return lacks, nil
}

// boundaries returns the keys at which a table's tablets end.
func boundaries(ctx context.Context, conn grpc.ClientConnInterface, table string) (map[string]bool, error) {
	stream, err := bigtablepb.NewBigtableClient(conn).SampleRowKeys(ctx, &bigtablepb.SampleRowKeysRequest{TableName: table})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for {
		sample, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out[string(sample.RowKey)] = true
	}
}
