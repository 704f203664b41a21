package main

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

// google signs tokens and publishes its keys.
type google struct {
	key     *rsa.PrivateKey
	status  int // of the answer with the keys; 0: the network is down
	fetched atomic.Int64
}

func newGoogle(t testing.TB) *google {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &google{key: key, status: http.StatusOK}
}

// RoundTrip answers with the keys.
func (g *google) RoundTrip(r *http.Request) (*http.Response, error) {
	g.fetched.Add(1)
	if g.status == 0 {
		return nil, errors.New("no network")
	}
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "public, max-age=19800, must-revalidate")
	w.WriteHeader(g.status)
	err := json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
		"kid": "key-1", "kty": "RSA", "alg": "RS256", "use": "sig",
		"n": base64.RawURLEncoding.EncodeToString(g.key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(g.key.E)).Bytes()),
	}}})
	return w.Result(), err
}

const (
	testAudience = "https://write.example.com/"
	testAccount  = "push@my-project.iam.gserviceaccount.com"
)

// token signs what Pub/Sub says, with changes; nil removes a claim.
func (g *google) token(t testing.TB, header map[string]any, claims map[string]any) string {
	t.Helper()
	h := map[string]any{"alg": "RS256", "kid": "key-1", "typ": "JWT"}
	c := map[string]any{
		"aud": testAudience, "iss": "https://accounts.google.com", "email": testAccount, "email_verified": true,
		"sub": "1", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for all, changes := range map[*map[string]any]map[string]any{&h: header, &c: claims} {
		for name, v := range changes {
			if (*all)[name] = v; v == nil {
				delete(*all, name)
			}
		}
	}
	segment := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	signed := segment(h) + "." + segment(c)
	hash := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, g.key, crypto.SHA256, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// checkedFunctions builds all functions of a file, which check tokens themselves.
func checkedFunctions(t testing.TB, g *google, log *functest.Log) *parts {
	t.Helper()
	file := strings.Replace(scanPipeline, "\nscans:", "\nwrite:\n  format: json\n  mappings: [{name: a, table: orders, rowKey: event.id, mutations: [{set: {cf: {status: event.id}}}]}]\nscans:", 1)
	env := map[string]string{
		"PIPELINE": file, "PUSH_AUDIENCE": testAudience, "PUSH_SERVICE_ACCOUNT": testAccount,
		"BIGTABLE_EMULATOR_HOST": "127.0.0.1:1", "LEDGER": "file:" + filepath.Join(t.TempDir(), "ledger.db"),
	}
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	built, err := buildFrom(env, "", func(e *environment) {
		e.logger, e.certs = slog.New(slog.NewTextHandler(log, nil)), g
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { built.open.Close() })
	return built
}

// Every function lets only the push subscription's own account in; other callers are told
// nothing but the status, and nothing of their requests is logged.
func TestTheFunctionsCheckTheTokenThemselves(t *testing.T) {
	g, other := newGoogle(t), newGoogle(t)
	log := &functest.Log{}
	built := checkedFunctions(t, g, log)
	if len(built.handlers) != 3 {
		t.Fatalf("functions %s", built.names())
	}
	good := g.token(t, nil, nil)
	short := g.token(t, map[string]any{"alg": "ES256"}, nil)
	for _, c := range []struct {
		name   string
		header []string
		want   int // 0: the handler has it
	}{
		{"Pub/Sub's token", []string{"Bearer " + good}, 0},
		{"in lower case", []string{"bearer " + good}, 0},
		{"the issuer's short name", []string{"Bearer " + g.token(t, nil, map[string]any{"iss": "accounts.google.com"})}, 0},
		{"none", nil, 401},
		{"two", []string{"Bearer " + good, "Bearer " + good}, 401},
		{"another scheme", []string{"Basic " + good}, 401},
		{"no token", []string{"Bearer "}, 401},
		{"nonsense", []string{"Bearer secret.secret.secret"}, 401},
		{"another key", []string{"Bearer " + other.token(t, nil, nil)}, 401},
		{"an unknown key", []string{"Bearer " + g.token(t, map[string]any{"kid": "key-2"}, nil)}, 401},
		{"no signature", []string{"Bearer " + good[:strings.LastIndex(good, ".")+1]}, 401},
		{"signed by none", []string{"Bearer " + g.token(t, map[string]any{"alg": "none"}, nil)}, 401},
		{"a short signature of another kind", []string{"Bearer " + short[:strings.LastIndex(short, ".")+1] + "AAAA"}, 401},
		{"Cloud Run's", []string{"Bearer " + good[:strings.LastIndex(good, ".")] + removedSignature}, 401},
		{"another audience", []string{"Bearer " + g.token(t, nil, map[string]any{"aud": testAudience + "x"})}, 401},
		{"no audience", []string{"Bearer " + g.token(t, nil, map[string]any{"aud": nil})}, 401},
		{"expired", []string{"Bearer " + g.token(t, nil, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})}, 401},
		{"another account", []string{"Bearer " + g.token(t, nil, map[string]any{"email": "secret@example.com"})}, 403},
		{"no account", []string{"Bearer " + g.token(t, nil, map[string]any{"email": nil})}, 403},
		{"an address that is not verified", []string{"Bearer " + g.token(t, nil, map[string]any{"email_verified": false})}, 403},
		{"verified as text", []string{"Bearer " + g.token(t, nil, map[string]any{"email_verified": "true"})}, 403},
		{"another issuer", []string{"Bearer " + g.token(t, nil, map[string]any{"iss": "https://secret.example.com"})}, 403},
	} {
		for name, h := range built.handlers {
			// The handlers answer another method than POST with 405.
			r := httptest.NewRequest(http.MethodGet, "/", unread{t})
			r.Header["Authorization"] = c.header
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.want == 0 && w.Code != http.StatusMethodNotAllowed || c.want != 0 && w.Code != c.want {
				t.Errorf("%s, %s: %d", c.name, name, w.Code)
			}
		}
	}
	if n := g.fetched.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	if text := log.String(); strings.Count(text, "it is not the push subscription's") != 1 || strings.Contains(text, "secret") {
		t.Errorf("log:\n%s", text)
	}
}

// unread is a body that nobody may read.
type unread struct{ t testing.TB }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, errors.New("not to be read")
}

// An outage of Google's keys says nothing of the caller.
func TestWithoutGooglesKeysARequestComesAgain(t *testing.T) {
	g := newGoogle(t)
	h := checkedFunctions(t, g, &functest.Log{}).handlers["write"]
	token := g.token(t, nil, nil)
	ask := func() int {
		r := httptest.NewRequest(http.MethodGet, "/", bytes.NewReader(nil))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct{ keys, want int }{{0, 503}, {500, 503}, {404, 503}, {200, 405}, {500, 405}} {
		if g.status = c.keys; ask() != c.want {
			t.Errorf("keys answer %d: not %d", c.keys, c.want)
		}
	}
}

func TestTheTokenIsCheckedForBothOrNotAtAll(t *testing.T) {
	for _, name := range []string{audienceVariable, accountVariable} {
		env := map[string]string{"PIPELINE": scanPipeline, name: "x"}
		_, err := buildFrom(env, "")
		if err == nil || !strings.Contains(err.Error(), "set together or not at all") {
			t.Errorf("%s alone: %v", name, err)
		}
	}
}
