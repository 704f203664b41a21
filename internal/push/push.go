// Package push guarantees that one Pub/Sub delivery over HTTP, in any of the
// shapes Pub/Sub has, becomes one Message, and that one verdict becomes one
// response: acknowledge (204) or refuse (429, 500 or 503, after which Pub/Sub
// delivers again).
//
// The three shapes are the JSON envelope of a push subscription, the same
// envelope inside a CloudEvent (Eventarc), binary or structured, and the bare
// payload with its metadata in headers (payload unwrapping with "write
// metadata"). A shape is
// told by its headers or by the exact, case-sensitive names of the envelope,
// never by a field of the payload that looks like one.
//
// Memory is bounded before it is used: a request reserves for the bytes of its body before
// they are read, and for the values and rows made of them as these are made. Payloads are never logged.
package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Message is one Pub/Sub message as delivered.
type Message struct {
	// ID is assigned by Pub/Sub, unique within the topic and the same in every
	// redelivery. Not empty in a well-formed delivery.
	ID string
	// PublishTime is set by Pub/Sub when the message is published, in UTC, and
	// the same in every redelivery. It is zero if the delivery has none: then
	// it must not be used.
	PublishTime time.Time
	// OrderingKey is empty when the publisher set none.
	OrderingKey string
	// Attributes is nil when there are none. An unwrapped delivery carries
	// attributes as HTTP headers, whose names have no case: there the names are
	// in lower case, and an attribute named like a header of the transport
	// (authorization, user-agent, traceparent …) is left out.
	Attributes map[string]string
	// Subscription is the full name, projects/P/subscriptions/S.
	Subscription string
	// DeliveryAttempt counts from 1 and is approximate. It is 0 when the
	// subscription has no dead-letter policy and in unwrapped deliveries.
	DeliveryAttempt int
	// Data is the payload, at most 10 MB by Pub/Sub's own limit. The receiver
	// of the message owns it.
	Data []byte
}

// LogValue prints what Pub/Sub assigned and the sizes of what the user wrote.
func (m Message) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", m.ID),
		slog.Time("publishTime", m.PublishTime),
		slog.Int("deliveryAttempt", m.DeliveryAttempt),
		slog.Int("orderingKeyBytes", len(m.OrderingKey)),
		slog.Int("attributes", len(m.Attributes)),
		slog.Int("dataBytes", len(m.Data)),
	)
}

// Delivery is one request that was admitted and read.
type Delivery struct {
	Message Message
	// Malformed is why the request is not a message: its body is over the cap,
	// of no known shape, or an envelope without what a message must have. It is
	// a rejected record: delivering it again cannot help. Message then holds
	// what could be read, and Message.Data the body as received, or nil when
	// that is over the cap. The text quotes nothing of the body.
	Malformed error
	// Size is the body's length in bytes; of a body over the cap, the declared
	// length, or what was read of it where none was declared.
	Size int64
	// Memory is the request's reservation within Config.MaxRequestBytes. All that is made of
	// the delivery is charged to it. It is nil, which takes every charge, if there is no
	// bound.
	Memory *Reservation
}

// ErrOverloaded in the chain of an error that deliver returns makes the refusal
// a 429: Pub/Sub slows down.
var ErrOverloaded = errors.New("overloaded")

// DefaultCap is the largest body read when Config.Cap is 0: 15 MiB, above the
// 13.3 MB of base64 and JSON that Pub/Sub's largest message makes.
const DefaultCap = 15 << 20

// DefaultAdmissionWait is how long a request waits to be admitted when
// Config.AdmissionWait is 0.
const DefaultAdmissionWait = 10 * time.Second

// Config bounds a Handler.
type Config struct {
	// Cap is the largest body in bytes that is read; 0 means DefaultCap.
	Cap int64
	// MaxRequestBytes bounds what all requests under way may use. A request of up to
	// 256 KiB reserves seven times its declared length when it enters; of a longer one,
	// and of one without a length, the reservation grows with the bytes that have
	// arrived, twice as much, and once it is whole by five times up to 2 MiB of it. Memory
	// beyond that is charged to Delivery.Memory. The oldest request is never
	// refused for want of room. 0 means no bound.
	MaxRequestBytes int64
	// AdmissionWait is how long a request waits for room, in order of arrival, before it
	// is refused with 429; 0 means DefaultAdmissionWait. It waits to be read, then to be
	// worked on. A body half-way waits a second at most.
	AdmissionWait time.Duration
	// Budget is the time from the request's arrival to the end of the context
	// that deliver gets; reading the body is part of it. 0 means no bound.
	Budget time.Duration
	// Logger gets panics and requests that were not admitted. Required.
	Logger *slog.Logger
}

// Handler serves deliveries: it admits the request, reads the body up to the
// cap, tells its shape and calls deliver. What deliver returns is the verdict:
// nil acknowledges, an error refuses. A panic in deliver is logged without user
// data and refused.
//
// The context of deliver ends with the budget and when the caller hangs up, for
// then nobody reads the verdict; work that must finish all the same needs an
// owner of its own. A body that does not arrive whole is refused and not
// delivered; it has ten seconds, and a second more for each 256 KiB that have arrived.
// One that has taken over a second gives way, with 429, if others wait for its room.
func Handler(cfg Config, deliver func(ctx context.Context, d *Delivery) error) http.Handler {
	if cfg.Cap == 0 {
		cfg.Cap = DefaultCap
	}
	if cfg.AdmissionWait == 0 {
		cfg.AdmissionWait = DefaultAdmissionWait
	}
	return &handler{
		cfg:     cfg,
		admit:   newAdmission(cfg.MaxRequestBytes, cfg.Cap, cfg.AdmissionWait),
		deliver: deliver,
	}
}

type handler struct {
	cfg     Config
	admit   *admission
	deliver func(context.Context, *Delivery) error
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	ctx := r.Context()
	in := &intake{r: r, conn: http.NewResponseController(w), limit: h.cfg.Cap, start: time.Now()}
	if h.cfg.Budget > 0 {
		in.deadline = in.start.Add(h.cfg.Budget)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, in.deadline)
		defer cancel()
	}
	w.WriteHeader(h.serve(ctx, in))
}

// serve returns the status to answer with.
func (h *handler) serve(ctx context.Context, in *intake) int {
	var err error
	in.memory, err = h.admit.enter(ctx, in.r.ContentLength, func() {
		_ = in.conn.SetReadDeadline(time.Now()) // as in Read
	})
	if err != nil {
		return h.crowded(ctx, in, err)
	}
	defer in.memory.leave()
	in.start = time.Now()
	d, err := in.delivery(ctx)
	switch {
	case err == nil:
		return h.verdict(ctx, d)
	case errors.Is(err, errBody):
		// The caller left or was too slow: it holds the message and sends it
		// again whole.
		return http.StatusRequestTimeout
	}
	return h.crowded(ctx, in, err)
}

// crowded refuses a request that there is no room for.
func (h *handler) crowded(ctx context.Context, in *intake, err error) int {
	if in.r.Context().Err() == nil { // the caller still waits
		h.cfg.Logger.WarnContext(ctx, "request refused: "+err.Error(),
			"contentLength", in.r.ContentLength, "maxRequestBytes", h.cfg.MaxRequestBytes)
	}
	return http.StatusTooManyRequests
}

func (h *handler) verdict(ctx context.Context, d *Delivery) (status int) {
	defer func() {
		if v := recover(); v != nil {
			h.cfg.Logger.ErrorContext(ctx, "delivery panicked and is refused",
				"panic", panicText(v), "stack", panicStack(), "delivery", d.Message)
			status = http.StatusInternalServerError
		}
	}()
	switch err := h.deliver(ctx, d); {
	case err == nil:
		return http.StatusNoContent
	case errors.Is(err, ErrOverloaded):
		return http.StatusTooManyRequests
	default:
		return http.StatusServiceUnavailable
	}
}
