package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"
)

const (
	// certsTime bounds fetching the keys with which Google signs.
	certsTime = 10 * time.Second
	// refusalsEvery is how often refused requests are logged: anybody can send them.
	refusalsEvery = 10 * time.Second
)

// caller is the one service account that may call the functions, with tokens that Google
// signs for one audience. It guarantees that no other request reaches a handler,
// and that the body of no other request is read.
// Source: https://docs.cloud.google.com/pubsub/docs/authenticate-push-subscriptions
type caller struct {
	audience, account string
	tokens            *idtoken.Validator
	logger            *slog.Logger

	mu      sync.Mutex
	told    time.Time
	refused int // since then
}

// newCaller returns nil if the environment asks for no check. Then Cloud Run's own check
// alone keeps other callers out.
func newCaller(env environment) (*caller, error) {
	if env.audience == "" {
		return nil, nil
	}
	c := &caller{audience: env.audience, account: env.account, logger: env.logger}
	client := &http.Client{Timeout: certsTime, Transport: okOnly{cmp.Or(env.certs, http.DefaultTransport)}}
	var err error
	if c.tokens, err = idtoken.NewValidator(context.Background(), option.WithHTTPClient(client)); err != nil {
		return nil, fmt.Errorf("preparing to check tokens: %w", err)
	}
	return c, nil
}

// guard lets only the caller's requests through to h. Others are refused with 401, with 403
// where the token is Google's but another's, and with 503 where Google's keys cannot be had.
func (c *caller) guard(h http.Handler) http.Handler {
	if c == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := c.check(r)
		if err == nil {
			h.ServeHTTP(w, r)
			return
		}
		c.tell(r.Context(), status, err)
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(status)
	})
}

// removedSignature ends a token from which Cloud Run has removed the signature that it
// checked.
const removedSignature = ".SIGNATURE_REMOVED_BY_GOOGLE"

// check returns the status for a request that is not the caller's. The error quotes nothing
// of the request.
func (c *caller) check(r *http.Request) (int, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return http.StatusUnauthorized, fmt.Errorf("%d Authorization headers, one is needed", len(values))
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, errors.New("the Authorization header has no bearer token")
	}
	if strings.HasSuffix(token, removedSignature) {
		return http.StatusUnauthorized, fmt.Errorf("the token has no signature: Cloud Run removes it once it has checked the token: leave %s and %s unset there", audienceVariable, accountVariable)
	}
	if !signedRS256(token) {
		return http.StatusUnauthorized, errors.New("the token is not signed with RS256, as Google signs the tokens of service accounts")
	}
	payload, err := c.tokens.Validate(r.Context(), token, c.audience)
	var fetching *url.Error
	switch {
	case errors.As(err, &fetching):
		return http.StatusServiceUnavailable, errors.New("the keys with which Google signs tokens cannot be fetched")
	case err != nil: // its texts may quote the token
		return http.StatusUnauthorized, fmt.Errorf("the token is not one that Google has signed for %s, or it has expired", audienceVariable)
	}
	verified, _ := payload.Claims["email_verified"].(bool)
	switch {
	case payload.Issuer != "https://accounts.google.com" && payload.Issuer != "accounts.google.com":
		return http.StatusForbidden, errors.New("the token is not of the issuer accounts.google.com")
	case payload.Claims["email"] != c.account || !verified:
		return http.StatusForbidden, fmt.Errorf("the token is of another account than %s", accountVariable)
	}
	return 0, nil
}

// signedRS256 reports whether a token says that it is signed with RS256, as those of Pub/Sub
// are. The validator takes ES256 too, and panics if the signature of such a token is short.
func signedRS256(token string) bool {
	header, _, _ := strings.Cut(token, ".")
	b, err := base64.RawURLEncoding.DecodeString(header)
	var h struct {
		Algorithm string `json:"alg"`
	}
	return err == nil && json.Unmarshal(b, &h) == nil && h.Algorithm == "RS256"
}

// tell logs refusals, at most one line every ten seconds.
func (c *caller) tell(ctx context.Context, status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	if now := time.Now(); now.Sub(c.told) >= refusalsEvery {
		c.logger.WarnContext(ctx, "request refused: it is not the push subscription's", "status", status, "error", err, "requests", c.refused)
		c.told, c.refused = now, 0
	}
}

// okOnly makes an error of every answer but 200, so that an outage of the keys is not taken
// for a fault of the token.
type okOnly struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o okOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection can be used again
	return nil, errors.Join(fmt.Errorf("answered %d", resp.StatusCode), resp.Body.Close())
}
