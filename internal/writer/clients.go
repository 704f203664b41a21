package writer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type instance struct{ project, name string }

// client is the connection to one instance, shared by its tables.
type client struct {
	key      instance
	busy     int       // accepted entries without an outcome
	used     time.Time // last
	draining bool      // takes no more entries; closed once it is not busy
	closing  bool

	renew atomic.Bool // the next call takes a new connection for data

	dialing sync.Mutex // guards what follows, is taken without the writer's lock
	closed  bool
	data    *connection
	admin   Conn
	retired []*connection // busy ones that were replaced
}

// connection is a connection for data. It is closed when it is replaced and its last call has ended.
type connection struct {
	Conn
	calls int
}

// clients are the connections, at most limits.instanceClients, closing ones included.
type clients struct {
	open    map[instance]*client
	waiting waitlist
}

// connect gives the table its client. It reports false if the entry must wait for
// another instance's client to be closed; then one is on its way.
func (w *Writer) connect(t *table) bool {
	if t.client != nil {
		return !t.client.draining
	}
	key := instance{t.ref.Project, t.ref.Instance}
	c := w.clients.open[key]
	if c == nil {
		if len(w.clients.open) >= w.cfg.Limits.InstanceClients {
			w.makeRoom()
			return false
		}
		c = &client{key: key}
		if w.clients.open == nil {
			w.clients.open = map[instance]*client{}
		}
		w.clients.open[key] = c
	}
	if c.draining {
		return false
	}
	c.used = t.used
	t.client = c
	return true
}

// makeRoom drains the client that was used least recently, one at a time.
func (w *Writer) makeRoom() {
	var oldest *client
	for _, c := range w.clients.open {
		if c.draining {
			return
		}
		if oldest == nil || c.used.Before(oldest.used) {
			oldest = c
		}
	}
	w.drain(oldest)
}

func (w *Writer) drain(c *client) {
	c.draining = true
	w.closeDrained(c)
}

// closeDrained closes a draining client that is not busy any more. Its place is free
// once it is closed.
func (w *Writer) closeDrained(c *client) {
	if c == nil || !c.draining || c.closing || c.busy > 0 || w.stopped {
		return
	}
	c.closing = true
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		w.closeClient(c)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.clients.open, c.key)
		for ref, t := range w.tables {
			if t.client == c {
				t.client = nil
				if t.refs == 0 && t.late.empty(time.Now()) {
					delete(w.tables, ref)
				}
			}
		}
		w.admitFrom(&w.clients.waiting)
	}()
}

func (w *Writer) closeClient(c *client) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	c.closed = true
	if c.data != nil {
		c.retired = append(c.retired, c.data)
	}
	for _, conn := range c.retired {
		c.close(w, conn)
	}
	if c.admin != nil {
		c.close(w, c.admin)
	}
	c.data, c.admin, c.retired = nil, nil, nil
}

func (c *client) close(w *Writer, conn Conn) {
	if err := conn.Close(); err != nil {
		w.log.Warn("closing a connection", "instance", c.key.name, "error", err)
	}
}

// closeClients closes all of them, when nothing runs any more.
func (w *Writer) closeClients() {
	w.mu.Lock()
	open := w.clients.open
	w.clients.open = nil
	w.mu.Unlock()
	for _, c := range open {
		w.closeClient(c)
	}
}

// dataConn returns the connection for data, made on first use and anew if the table
// answers nothing over the last one. The caller releases it.
func (c *client) dataConn(w *Writer) (*connection, error) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	if c.renew.Swap(false) && c.data != nil {
		if c.data.calls > 0 {
			c.retired = append(c.retired, c.data)
		} else {
			c.close(w, c.data)
		}
		c.data = nil
	}
	if c.data == nil {
		conn, err := c.dial(w, w.cfg.Dial)
		if err != nil {
			return nil, err
		}
		c.data = &connection{Conn: conn}
	}
	c.data.calls++
	return c.data, nil
}

// release gives a connection back after a call.
func (c *client) release(w *Writer, conn *connection) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	if conn.calls--; conn.calls > 0 {
		return
	}
	if i := slices.Index(c.retired, conn); i >= 0 {
		c.retired = slices.Delete(c.retired, i, i+1)
		c.close(w, conn)
	}
}

// adminConn returns the connection for table administration, made on first use.
func (c *client) adminConn(w *Writer) (Conn, error) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	if c.admin == nil {
		var err error
		if c.admin, err = c.dial(w, w.cfg.DialAdmin); err != nil {
			return nil, err
		}
	}
	return c.admin, nil
}

func (c *client) dial(w *Writer, dial func(context.Context, string, string) (Conn, error)) (Conn, error) {
	if c.closed {
		return nil, ErrClosed
	}
	conn, err := dial(w.ctx, c.key.project, c.key.name)
	if err != nil {
		return nil, fmt.Errorf("connecting to instance %s: %w", c.key.name, err)
	}
	return conn, nil
}

// sweep drops tables that were not used for limits.tableIdle, and clients without tables.
func (w *Writer) sweep(now time.Time) {
	live := map[*client]bool{}
	for ref, t := range w.tables {
		if t.refs == 0 && now.Sub(t.used) >= w.cfg.Limits.TableIdle && t.late.empty(now) {
			delete(w.tables, ref)
			t.stopAlarms()
			continue
		}
		live[t.client] = true
	}
	for _, c := range w.clients.open {
		if !live[c] && !c.draining {
			w.drain(c)
		}
	}
}
