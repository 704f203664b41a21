package writer

import (
	"context"
	"fmt"
	"sync"
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

	dialing sync.Mutex // guards data and admin, is taken without the writer's lock
	data    Conn
	admin   Conn
}

// clients are the connections, at most limits.instanceClients, closing ones included.
type clients struct {
	open    map[instance]*client
	waiting waitlist
}

// connect gives the table its client. It reports false where the entry must wait for
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
				if t.refs == 0 {
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
	for _, conn := range []Conn{c.data, c.admin} {
		if conn == nil {
			continue
		}
		if err := conn.Close(); err != nil {
			w.log.Warn("closing a connection", "instance", c.key.name, "error", err)
		}
	}
	c.data, c.admin = nil, nil
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

// dataConn returns the connection for data, made on first use.
func (c *client) dataConn(w *Writer) (Conn, error) { return c.dial(w, &c.data, w.cfg.Dial) }

// adminConn returns the connection for table administration, made on first use.
func (c *client) adminConn(w *Writer) (Conn, error) { return c.dial(w, &c.admin, w.cfg.DialAdmin) }

func (c *client) dial(w *Writer, conn *Conn, dial func(context.Context, string, string) (Conn, error)) (Conn, error) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	if *conn == nil {
		made, err := dial(w.ctx, c.key.project, c.key.name)
		if err != nil {
			return nil, fmt.Errorf("connecting to instance %s: %w", c.key.name, err)
		}
		*conn = made
	}
	return *conn, nil
}

// sweep drops tables that were not used for limits.tableIdle, and clients without tables.
func (w *Writer) sweep(now time.Time) {
	live := map[*client]bool{}
	for ref, t := range w.tables {
		if t.refs == 0 && now.Sub(t.used) >= w.cfg.Limits.TableIdle {
			delete(w.tables, ref)
			if t.timer != nil {
				t.timer.Stop()
			}
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
