package localcloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// web serves handlers and sends requests, over TCP or in memory.
type web struct {
	inMemory bool
	client   *http.Client
	conns    sync.WaitGroup // connections of all servers
	serving  sync.WaitGroup

	mu      sync.Mutex
	servers []*http.Server
	pipes   map[string]*pipeListener // by host
}

func newWeb(inMemory bool) *web {
	w := &web{inMemory: inMemory, pipes: map[string]*pipeListener{}}
	t := &http.Transport{MaxIdleConnsPerHost: largestWindow, IdleConnTimeout: time.Minute}
	if inMemory {
		t.DialContext = w.dial
	}
	w.client = &http.Client{
		Transport: t,
		// A redirect is no acknowledgement.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w
}

// serve starts a server of h and returns its URL.
func (w *web) serve(h http.Handler) (url string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var l net.Listener
	if w.inMemory {
		host := fmt.Sprintf("function-%d.local", len(w.servers))
		p := newPipeListener(host)
		w.pipes[host] = p
		l = p
	} else if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return "", fmt.Errorf("listening for a function: %w", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ConnState: w.count}
	w.servers = append(w.servers, srv)
	w.serving.Go(func() { _ = srv.Serve(l) }) // always ErrServerClosed, by close
	return "http://" + l.Addr().String() + "/", nil
}

func (w *web) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		w.conns.Done()
	}
}

func (w *web) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	w.mu.Lock()
	l := w.pipes[host]
	w.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no function at %s in this process", host)
	}
	return l.dial(ctx)
}

// close waits until every connection is gone.
func (w *web) close() error {
	w.client.CloseIdleConnections()
	w.mu.Lock()
	servers := w.servers
	w.mu.Unlock()
	var err error
	for _, srv := range servers {
		err = errors.Join(err, srv.Close())
	}
	w.serving.Wait()
	w.conns.Wait()
	return err
}

// pipeListener accepts connections that it is given, or that need no network and have
// deadlines, which net/http needs and bufconn has not.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
	host  string
}

func newPipeListener(host string) *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{}), host: host}
}

// give hands over a connection, unless the listener is closed.
func (l *pipeListener) give(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	var err error
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, client.Close(), server.Close())
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr  { return l }
func (l *pipeListener) Network() string { return "pipe" }
func (l *pipeListener) String() string  { return l.host }
