package push

import (
	"fmt"
	"io"
	"net/http"
)

// drainLimit is how much of a body over the cap is read and thrown away, so
// that the caller gets to read the answer: Cloud Run's limit for a request.
const drainLimit = 32 << 20

// readDelivery reads the body and tells its shape. An error means that the body
// did not arrive whole.
func readDelivery(r *http.Request, limit int64) (*Delivery, error) {
	body, size, err := readBody(r, limit)
	if err != nil {
		return nil, err
	}
	d := &Delivery{Size: size}
	if size > limit {
		d.Malformed = fmt.Errorf("body of %d bytes is over the limit of %d", size, limit)
		if isUnwrapped(r.Header) {
			// What is wrong already stands in Malformed.
			_ = readMetadata(r.Header, &d.Message)
		}
		return d, nil
	}
	if d.Malformed = readMessage(r.Header, body, &d.Message); d.Malformed != nil {
		d.Message.Data = body
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

// readBody returns the body in a buffer of its size. For one over the cap it
// returns no body and a size over the cap.
func readBody(r *http.Request, limit int64) (body []byte, size int64, err error) {
	if r.ContentLength > limit {
		return nil, r.ContentLength, drain(r.Body)
	}
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, 0, fmt.Errorf("reading body: %w", err)
		}
		return body, r.ContentLength, nil
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, 0, fmt.Errorf("reading body: %w", err)
	}
	if size = int64(len(body)); size > limit {
		return nil, size, drain(r.Body)
	}
	return body, size, nil
}

func drain(body io.Reader) error {
	if _, err := io.Copy(io.Discard, io.LimitReader(body, drainLimit)); err != nil {
		return fmt.Errorf("reading body over the limit: %w", err)
	}
	return nil
}
