package btrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"google.golang.org/api/option"
	apigrpc "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// EmulatorVariable is the environment variable that names an emulator, host:port
// with or without http:// or https:// before it.
const EmulatorVariable = "BIGTABLE_EMULATOR_HOST"

// PrincipalVariable is the environment variable that names the principal of calls to
// an emulator, as an IAM policy names it: serviceAccount:NAME@PROJECT.iam.gserviceaccount.com.
const PrincipalVariable = "BIGTABLE_EMULATOR_PRINCIPAL"

// principalHeader is how the emulator of this repository learns who calls
// (docs/emulator.md). The service knows its callers by their credentials.
const principalHeader = "x-btf-principal"

const (
	dataEndpoint  = "bigtable.googleapis.com:443"
	adminEndpoint = "bigtableadmin.googleapis.com:443"
	dataScope     = "https://www.googleapis.com/auth/bigtable.data"
	adminScope    = "https://www.googleapis.com/auth/bigtable.admin"
	cloudScope    = "https://www.googleapis.com/auth/cloud-platform" // of a key file, which serves all clients

	maxMessage = 256 << 20 // what the service and its own clients accept

	// DefaultPool is the number of connections to one instance. One carries 100
	// calls at a time; a writer makes a handful, so 4 leave room and spread them
	// over front ends, at a TLS handshake each, made when first used.
	DefaultPool = 4
)

// Conn is a connection, or a pool of them, to one service.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Dialer opens connections: to Google with one set of credentials, read once, or to
// an emulator.
type Dialer struct {
	emulator    string
	principal   string            // sent to the emulator only
	credentials *auth.Credentials // nil: application default
	userAgent   string
	pool        int
}

// DialConfig says what a Dialer connects to.
type DialConfig struct {
	// Emulator is the value of EmulatorVariable; empty for the real service.
	Emulator string
	// Principal is the value of PrincipalVariable. It is sent to an emulator only.
	Principal string
	// CredentialsFile is a path; empty for application default credentials.
	// It is refused beside Emulator.
	CredentialsFile string
	// UserAgent names the program; empty for the transport's own.
	UserAgent string
	// Pool is the number of connections for each Data call; 0 means DefaultPool.
	Pool int
}

// NewDialer reads the credentials file, if one is named. Its errors give neither
// the path nor anything that stands in the file.
func NewDialer(cfg DialConfig) (*Dialer, error) {
	d := &Dialer{emulator: stripScheme(cfg.Emulator), principal: cfg.Principal, userAgent: cfg.UserAgent, pool: cfg.Pool}
	if d.pool == 0 {
		d.pool = DefaultPool
	}
	if cfg.CredentialsFile == "" {
		return d, nil
	}
	if d.emulator != "" {
		return nil, fmt.Errorf("credentialsFile and %s are both set: an emulator takes no credentials", EmulatorVariable)
	}
	var err error
	d.credentials, err = readCredentials(cfg.CredentialsFile)
	return d, err
}

func stripScheme(host string) string {
	return strings.TrimPrefix(strings.TrimPrefix(host, "http://"), "https://")
}

var (
	errCredentialsRead  = errors.New("reading credentialsFile: the file cannot be read")
	errCredentialsParse = errors.New("reading credentialsFile: not a Google credentials file of a known type")
)

func readCredentials(path string) (*auth.Credentials, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errCredentialsRead
	}
	var file struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, errCredentialsParse
	}
	creds, err := credentials.NewCredentialsFromJSON(file.Type, b, &credentials.DetectOptions{
		Scopes: []string{cloudScope}, UseSelfSignedJWT: true,
	})
	if err != nil {
		return nil, errCredentialsParse
	}
	return creds, nil
}

// Credentials returns the options that make another Google client, such as that of Pub/Sub,
// use the credentials file: none if there is no file. emulator is the value of the variable
// that names an emulator of that service, beside which a file is refused.
func (d *Dialer) Credentials(variable, emulator string) ([]option.ClientOption, error) {
	if d.credentials == nil {
		return nil, nil
	}
	if emulator != "" {
		return nil, fmt.Errorf("credentialsFile and %s are both set: an emulator takes no credentials", variable)
	}
	return []option.ClientOption{option.WithAuthCredentials(d.credentials)}, nil
}

// Data connects to the data service. ctx must live as long as the connection does.
// No connection is made before the first call.
func (d *Dialer) Data(ctx context.Context) (Conn, error) {
	return d.dial(ctx, dataEndpoint, dataScope, d.pool)
}

// Admin connects to the table administration service, over one connection.
func (d *Dialer) Admin(ctx context.Context) (Conn, error) {
	return d.dial(ctx, adminEndpoint, adminScope, 1)
}

func (d *Dialer) dial(ctx context.Context, endpoint, scope string, pool int, extra ...grpc.DialOption) (Conn, error) {
	if d.emulator != "" {
		return d.dialEmulator()
	}
	opts := []option.ClientOption{
		option.WithEndpoint(endpoint), option.WithScopes(scope), option.WithGRPCConnectionPool(pool),
	}
	opts = append(opts, d.clientOptions(extra...)...)
	conn, err := apigrpc.DialPool(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	return conn, nil
}

func (d *Dialer) dialEmulator(extra ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts := append(connOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if d.userAgent != "" {
		opts = append(opts, grpc.WithUserAgent(d.userAgent))
	}
	if d.principal != "" {
		opts = append(opts, asPrincipal(d.principal)...)
	}
	return grpc.NewClient("passthrough:///"+d.emulator, append(opts, extra...)...)
}

// asPrincipal makes every call carry the header that names a principal.
func asPrincipal(principal string) []grpc.DialOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, principalHeader, principal), method, req, reply, cc, opts...)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return open(metadata.AppendToOutgoingContext(ctx, principalHeader, principal), desc, cc, method, opts...)
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

// clientOptions are what every connection to Google has.
func (d *Dialer) clientOptions(extra ...grpc.DialOption) []option.ClientOption {
	var opts []option.ClientOption
	for _, o := range append(connOptions(), extra...) {
		opts = append(opts, option.WithGRPCDialOption(o))
	}
	if d.userAgent != "" {
		opts = append(opts, option.WithUserAgent(d.userAgent))
	}
	if d.credentials != nil {
		opts = append(opts, option.WithAuthCredentials(d.credentials))
	}
	return opts
}

// connOptions: messages as large as the service takes, and pings that notice a dead
// connection within 40 s, which the transport alone does not.
func connOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxMessage), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
}
