package assemble

import (
	"context"
	"fmt"
	"sync"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

// ServicesConfig says which services a program reaches, and how.
type ServicesConfig struct {
	Env      Env
	Pipeline *pipeline.Pipeline
	// UserAgent names the program to Bigtable.
	UserAgent string
	// Pool is how many connections a connection to Bigtable's data consists of. 0 is the default of
	// btrpc.DialConfig.
	Pool int
	// LedgerOptions are zero for a deployment.
	LedgerOptions ledger.Options
	// Google are further options of the clients of Pub/Sub and Firestore.
	Google []option.ClientOption
}

// Services connects to the services that the environment names, with the credentials of the
// pipeline file. It connects to Pub/Sub and to the ledger when one of them is first asked
// for, and once only. It is safe for concurrent use.
type Services struct {
	// Dialer makes connections to Bigtable. Their users close them.
	Dialer *btrpc.Dialer
	cfg    ServicesConfig

	mu     sync.Mutex
	client *pubsub.Client
	ledger *ledger.Ledger
	open   closers.Stack
}

// NewServices reads the credentials. It connects to nothing. The caller must Close the
// services after everything that uses them.
func NewServices(cfg ServicesConfig) (*Services, error) {
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{
		Emulator: cfg.Env.BigtableEmulator, Principal: cfg.Env.BigtablePrincipal, CredentialsFile: cfg.Pipeline.CredentialsFile, UserAgent: cfg.UserAgent, Pool: cfg.Pool,
	})
	if err != nil {
		return nil, err
	}
	return &Services{Dialer: dialer, cfg: cfg}, nil
}

// PubSub returns the client of the project of the pipeline's topics. It must not be closed.
func (s *Services) PubSub(ctx context.Context) (*pubsub.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	credentials, err := s.Dialer.Credentials(PubSubEmulatorVariable, s.cfg.Env.PubSubEmulator)
	if err != nil {
		return nil, err
	}
	// The client outlives the context in which it is made.
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), s.cfg.Env.TopicsProject(s.cfg.Pipeline), append(credentials, s.cfg.Google...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to Pub/Sub: %w", err)
	}
	s.client = client
	s.open.Add(client.Close)
	return client, nil
}

// Ledger opens the ledger that LEDGER names. It fails if LEDGER is not set.
func (s *Services) Ledger(ctx context.Context) (*ledger.Ledger, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger != nil {
		return s.ledger, nil
	}
	place := s.cfg.Env.Ledger
	if place == (ledger.Location{}) {
		return nil, fmt.Errorf("%s is not set: scans need firestore:PROJECT/DATABASE, as in firestore:my-project/(default), or file:PATH", LedgerVariable)
	}
	credentials, err := s.Dialer.Credentials(FirestoreEmulatorVariable, s.cfg.Env.FirestoreEmulator)
	if err != nil {
		return nil, err
	}
	l, closer, err := OpenLedger(ctx, place, s.cfg.Pipeline.Name, s.cfg.LedgerOptions, append(credentials, s.cfg.Google...)...)
	if err != nil {
		return nil, err
	}
	s.ledger = l
	s.open.Add(closer)
	return l, nil
}

// Close closes every connection that was made here, the newest first.
func (s *Services) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open.Close()
}

// OpenLedger opens the ledger of a pipeline at a place. The caller closes it. google are
// options of the client of Firestore, which a place in Firestore needs.
func OpenLedger(ctx context.Context, place ledger.Location, pipelineName string, o ledger.Options, google ...option.ClientOption) (*ledger.Ledger, func() error, error) {
	if place.Path != "" {
		store, err := file.Open(ctx, place.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, pipelineName, o), func() error { return nil }, nil
	}
	// The client outlives the context in which it is made.
	store, err := firestore.Open(context.WithoutCancel(ctx), place.Project, place.Database, google...)
	if err != nil {
		return nil, nil, err
	}
	return ledger.New(store, pipelineName, o), store.Close, nil
}
