package functest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// KeyFile writes the key file of a service account that exists nowhere.
// A client that asks for a token at the address in it gets the text that it has signed.
func KeyFile(t testing.TB, email string) string {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, r.FormValue("assertion"))
	}))
	t.Cleanup(tokens.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "p", "private_key_id": "1", "client_email": email,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": tokens.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Google is a server of Google's, over TLS, that refuses every call with PERMISSION_DENIED
// and notes who made it.
type Google struct {
	Addr  string
	Trust grpc.DialOption // makes a client trust the server

	mu      sync.Mutex
	callers map[string]string
}

// NewGoogle starts one, until the test ends.
func NewGoogle(t testing.TB) *Google {
	t.Helper()
	cert := httptest.NewTLSServer(nil) // for its certificate
	defer cert.Close()
	roots := x509.NewCertPool()
	roots.AddCert(cert.Certificate())
	g := &Google{callers: map[string]string{}, Trust: grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots}))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.Addr = l.Addr().String()
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert.TLS.Certificates[0])), grpc.UnknownServiceHandler(g.refuse))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() { s.Stop(); <-done })
	return g
}

// Options make a client of a Google service call the server.
func (g *Google) Options() []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(g.Addr), option.WithGRPCDialOption(g.Trust)}
}

func (g *Google) refuse(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers[path.Base(method)] = issuer(stream.Context())
	return status.Error(codes.PermissionDenied, "nobody may do anything")
}

// Caller is the e-mail address of the service account that signed the token of the last
// call of a method; empty for none.
func (g *Google) Caller(method string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.callers[method]
}

// issuer reads the claim of a token that its holder signed.
func issuer(ctx context.Context) string {
	token := strings.Split(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ""), ".")
	if len(token) != 3 {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	b, err := base64.RawURLEncoding.DecodeString(token[1])
	if err != nil || json.Unmarshal(b, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// Call calls a method of the server with an empty message, and ignores the refusal.
func (g *Google) Call(ctx context.Context, conn grpc.ClientConnInterface, method string) {
	_ = conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
}
