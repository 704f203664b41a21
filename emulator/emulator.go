// Package emulator is a Bigtable for laptops and tests that answers as the
// service does.
//
// It guarantees that a row changes atomically and that every read sees one
// state of a table, that a refused entry or request leaves nothing behind, and
// that statuses are those of the service; docs/emulator.md lists, with
// sources, where that differs from Google's emulator and what is not known of
// the service. Projects and instances need not be created, but can be. It has
// no authentication: never let anyone else reach it.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/journal"
	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// maxMessage is the largest gRPC message either way, in bytes: what Google's
// clients set to match the service.
const maxMessage = 256 << 20

// pingInterval is the shortest time between a client's pings that is taken.
const pingInterval = 10 * time.Second

// Emulator is one Bigtable. Its methods are safe for concurrent use.
type Emulator struct {
	opts   Options
	limits store.Limits
	clock  clock
	log    *slog.Logger
	server *grpc.Server
	faults faults

	// mu is held for reading by whatever changes state, so that holding it
	// for writing sees a state that no change is half-way through.
	mu         sync.RWMutex
	tables     map[string]*table
	instances  map[string]*instance                      // those that were created, changed or deleted
	profiles   map[string]map[string]*adminpb.AppProfile // by instance, by id; replaced, never changed
	policies   map[string]*iampb.Policy                  // by resource; replaced, never changed
	backups    map[string]*backup                        // by name; replaced, never changed
	nextID     uint64                                    // of tables
	operations operations

	journal *journal.Journal // nil without a DataDir
	saving  atomic.Bool      // a snapshot is being written

	running  sync.WaitGroup
	spawning sync.Mutex // guards stopped
	stopped  bool       // nothing may be spawned any more
	stop     context.CancelFunc
	memory   func() *bufconn.Listener
	closed   func() error
}

// New makes an emulator and, with a DataDir, loads what it holds. Close it.
func New(opts Options) (*Emulator, error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	if opts.TabletBytes == 0 {
		opts.TabletBytes = DefaultTabletBytes
	}
	if opts.SnapshotBytes == 0 {
		opts.SnapshotBytes = DefaultSnapshotBytes
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Emulator{
		opts:      opts,
		limits:    opts.Limits.orDefaults(),
		clock:     clock{source: opts.Clock},
		log:       opts.Logger,
		tables:    map[string]*table{},
		instances: map[string]*instance{},
		profiles:  map[string]map[string]*adminpb.AppProfile{},
		policies:  map[string]*iampb.Policy{},
		backups:   map[string]*backup{},
	}
	if opts.DataDir != "" {
		if err := e.load(); err != nil {
			return nil, fmt.Errorf("starting the emulator: %w", err)
		}
	}
	e.server = e.newServer()
	e.memory = sync.OnceValue(e.serveMemory)
	e.closed = sync.OnceValue(e.shutDown)
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	if opts.GCInterval > 0 {
		e.spawn(func() { e.collectEvery(ctx, opts.GCInterval) })
	}
	return e, nil
}

// spawn runs f in a goroutine that Close waits for; not at all after Close.
func (e *Emulator) spawn(f func()) {
	e.spawning.Lock()
	defer e.spawning.Unlock()
	if !e.stopped {
		e.running.Go(f)
	}
}

func (e *Emulator) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
		// Clients ping long streams every 30 s; gRPC's own bound of five minutes
		// would cut them.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval, PermitWithoutStream: true}),
		grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(8<<20),
		grpc.UnaryInterceptor(e.unary),
		grpc.StreamInterceptor(e.stream),
	)
	bigtablepb.RegisterBigtableServer(s, &dataService{e: e})
	adminpb.RegisterBigtableTableAdminServer(s, &tableAdmin{e: e})
	adminpb.RegisterBigtableInstanceAdminServer(s, &instanceAdmin{e: e})
	longrunningpb.RegisterOperationsServer(s, &e.operations)
	return s
}

// Serve answers gRPC without TLS on a listener until Close, which makes it
// return nil. It closes the listener. It may be called for several listeners.
func (e *Emulator) Serve(l net.Listener) error {
	if err := e.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving Bigtable on %s: %w", l.Addr(), err)
	}
	return nil
}

func (e *Emulator) serveMemory() *bufconn.Listener {
	l := bufconn.Listen(1 << 20)
	e.spawn(func() {
		if err := e.Serve(l); err != nil {
			e.log.Error("in-memory listener", "error", err)
		}
	})
	return l
}

// Dial connects to the emulator in memory, without a port. The context is
// not used after Dial returns. The caller closes the connection.
func (e *Emulator) Dial(ctx context.Context) (*grpc.ClientConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := e.memory()
	conn, err := grpc.NewClient("passthrough:///emulator",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to the emulator in memory: %w", err)
	}
	return conn, nil
}

// Close ends every call, waits for all the emulator started and closes the
// DataDir's files. It may be called more than once.
func (e *Emulator) Close() error { return e.closed() }

func (e *Emulator) shutDown() error {
	e.stop()
	e.server.Stop()
	e.spawning.Lock()
	e.stopped = true
	e.spawning.Unlock()
	e.running.Wait()
	if e.journal == nil {
		return nil
	}
	if err := e.journal.Close(); err != nil {
		return fmt.Errorf("closing the emulator: %w", err)
	}
	return nil
}
