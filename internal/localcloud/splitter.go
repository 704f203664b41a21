package localcloud

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// splitter gives the connections of one port to two servers, by what the client says
// first.
type splitter struct {
	listener     net.Listener
	http2, http1 *pipeListener
	looking      sync.WaitGroup

	mu     sync.Mutex
	silent map[net.Conn]bool // nothing was heard of them yet; nil when it has ended
}

// silence is how long a connection may say nothing.
const silence = time.Minute

// acceptPause is how long nothing is accepted where files or memory are short.
const acceptPause = 50 * time.Millisecond

func newSplitter(l net.Listener) *splitter {
	return &splitter{
		listener: l, silent: map[net.Conn]bool{},
		http2: newPipeListener(l.Addr().String()), http1: newPipeListener(l.Addr().String()),
	}
}

// run accepts until the listener is closed, and returns when nothing of it is left.
func (s *splitter) run() error {
	for {
		conn, err := s.listener.Accept()
		if passes(err) {
			time.Sleep(acceptPause)
			continue
		}
		if err != nil {
			s.end()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		s.mu.Lock()
		s.silent[conn] = true
		s.mu.Unlock()
		s.looking.Go(func() { s.look(conn) })
	}
}

// passes reports whether accepting failed for want of files or memory.
func passes(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func (s *splitter) end() {
	s.mu.Lock()
	for conn := range s.silent {
		_ = conn.Close() // it would never be answered
	}
	s.silent = nil
	s.mu.Unlock()
	_, _ = s.http2.Close(), s.http1.Close()
	s.looking.Wait()
}

// preface is how every connection of HTTP/2 begins, and none of HTTP/1.
// Source: RFC 9113, section 3.4.
const preface = "PRI "

// look hands a connection on. One that breaks before is nobody's.
func (s *splitter) look(conn net.Conn) {
	begin := make([]byte, len(preface))
	err := conn.SetReadDeadline(time.Now().Add(silence))
	if err == nil {
		_, err = io.ReadFull(conn, begin)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	s.mu.Lock()
	delete(s.silent, conn)
	s.mu.Unlock()
	to := s.http1
	if string(begin) == preface {
		to = s.http2
	}
	if err != nil || !to.give(&begun{Conn: conn, begin: begin}) {
		_ = conn.Close()
	}
}

// begun is a connection whose first bytes were read.
type begun struct {
	net.Conn
	begin []byte
}

func (c *begun) Read(b []byte) (int, error) {
	if len(c.begin) > 0 {
		n := copy(b, c.begin)
		c.begin = c.begin[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
