package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// drainLimit is how much of a body over the cap is read and thrown away, so
// that the caller gets to read the answer: Cloud Run's limit for a request.
const drainLimit = 32 << 20

// A body may take bodyTime, and as long as its bytes need at slowRate bytes a second.
const (
	bodyTime = 10 * time.Second
	slowRate = 256 << 10
)

// errBody says that the body did not arrive whole.
var errBody = errors.New("reading body")

// intake reads the body of one request.
type intake struct {
	r        *http.Request
	conn     *http.ResponseController
	limit    int64
	memory   *Reservation
	start    time.Time
	deadline time.Time // of the whole request; zero: none
	read     int64
}

// delivery reads the body and tells its shape. An error has errBody in its chain if the
// body did not arrive whole, ErrOverloaded if there is no room for it.
func (in *intake) delivery(ctx context.Context) (*Delivery, error) {
	body, size, err := in.body(ctx)
	if err != nil {
		return nil, err
	}
	// From here on the connection is read to see whether the caller hangs up.
	_ = in.conn.SetReadDeadline(in.deadline)
	if err := in.memory.whole(ctx, size); err != nil {
		return nil, err
	}
	d := &Delivery{Size: size, Memory: in.memory}
	if size > in.limit {
		d.Malformed = fmt.Errorf("body of %d bytes is over the limit of %d", size, in.limit)
		if isUnwrapped(in.r.Header) {
			// What is wrong already stands in Malformed.
			_ = readMetadata(in.r.Header, &d.Message)
		}
		return d, nil
	}
	if d.Malformed = readMessage(in.r.Header, body, &d.Message); d.Malformed != nil {
		d.Message.Data = body
	}
	if size > firstRead {
		in.memory.keep(int64(cap(d.Message.Data)))
	}
	return d, nil
}

// readMessage fills m from a body and its headers.
func readMessage(h http.Header, body []byte, m *Message) error {
	if isUnwrapped(h) {
		m.Data = body
		return readMetadata(h, m)
	}
	if isStructured(h) {
		return parseStructured(body, m)
	}
	if isCloudEvent(h) {
		if err := checkCloudEvent(h); err != nil {
			return err
		}
	}
	return parseEnvelope(body, m)
}

// body returns the body in a buffer that grows as it arrives. For one over the cap it
// returns no body and a size over the cap.
func (in *intake) body(ctx context.Context) (body []byte, size int64, err error) {
	declared := in.r.ContentLength
	if declared > in.limit {
		return nil, declared, in.drain()
	}
	most := in.limit + 1 // one byte more than the cap tells that a body is over it
	if declared >= 0 {
		most = declared
	}
	buf := make([]byte, 0, min(most, firstRead))
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) == most {
				break
			}
			n := min(most, 4*int64(cap(buf)))
			if n > promised { // large buffers grow more slowly: what is reserved is soon used
				n = min(most, max(promised, int64(cap(buf))/2*3))
			}
			if err := in.memory.grow(ctx, n); err != nil {
				return nil, 0, err
			}
			larger := make([]byte, len(buf), n)
			copy(larger, buf)
			buf = larger
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF && (declared < 0 || int64(len(buf)) == declared) {
			break
		}
		if err != nil {
			return nil, 0, in.failed(err)
		}
	}
	if size = int64(len(buf)); size > in.limit {
		return nil, size, in.drain()
	}
	return buf, size, nil
}

// Read reads the bytes of the body that have arrived, and gives the rest its time.
func (in *intake) Read(p []byte) (int, error) {
	deadline := in.start.Add(bodyTime + time.Duration(in.read)*time.Second/slowRate)
	if in.memory != nil {
		deadline = deadline.Add(in.memory.waited)
	}
	if !in.deadline.IsZero() && in.deadline.Before(deadline) {
		deadline = in.deadline
	}
	// Where the writer has no connection below (a test's recorder) there is nothing to
	// bound.
	_ = in.conn.SetReadDeadline(deadline)
	if in.memory.interrupted() { // before the deadline was set
		return 0, errGaveWay
	}
	n, err := in.r.Body.Read(p)
	in.read += int64(n)
	return n, err
}

// failed says why a body did not arrive.
func (in *intake) failed(err error) error {
	if in.memory.interrupted() {
		return errGaveWay
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

// drain throws away what is left of a body over the cap.
func (in *intake) drain() error {
	if _, err := io.Copy(io.Discard, io.LimitReader(in, drainLimit)); err != nil {
		return in.failed(err)
	}
	return nil
}
