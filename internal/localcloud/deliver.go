package localcloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// outcome of one delivery: acked, forwarded after the last refusal, or neither.
type outcome struct {
	delivery         *delivery
	acked, forwarded bool
}

// envelope is the body of a push request, with both spellings, as Pub/Sub
// writes it.
type envelope struct {
	DeliveryAttempt int             `json:"deliveryAttempt,omitempty"`
	Message         envelopeMessage `json:"message"`
	Subscription    string          `json:"subscription"`
}

type envelopeMessage struct {
	Attributes       map[string]string `json:"attributes,omitempty"`
	Data             []byte            `json:"data,omitempty"`
	MessageID        string            `json:"messageId"`
	MessageIDSnake   string            `json:"message_id"`
	OrderingKey      string            `json:"orderingKey,omitempty"`
	PublishTime      time.Time         `json:"publishTime"`
	PublishTimeSnake time.Time         `json:"publish_time"`
}

// deliver sends one request and, after the last refusal, forwards the message.
func (s *Subscription) deliver(d *delivery) outcome {
	ctx := s.cloud.requests
	attempt := d.refused + 1
	status, err := s.post(ctx, d, attempt)
	if err == nil && isAck(status) {
		return outcome{delivery: d, acked: true}
	}
	log := s.cloud.opts.Logger.With("subscription", s.p.ID, "message", d.message.ID, "attempt", attempt)
	log.Debug("delivery refused", "status", status, "error", err)
	if s.p.MaxAttempts == 0 || attempt < s.p.MaxAttempts {
		return outcome{delivery: d}
	}
	if err := s.forward(ctx, d, attempt); err != nil {
		if ctx.Err() == nil {
			log.Error("message cannot be forwarded and is delivered again", "error", err)
		}
		return outcome{delivery: d}
	}
	return outcome{delivery: d, forwarded: true}
}

// isAck holds the codes that Pub/Sub takes for an acknowledgement.
// Source: https://docs.cloud.google.com/pubsub/docs/push#receive_push
func isAck(status int) bool {
	switch status {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// errProcessing ends a request whose answer begins with 102, which net/http
// would go on to wait behind.
var errProcessing = errors.New("answered 102")

// post returns the status of the answer.
func (s *Subscription) post(ctx context.Context, d *delivery, attempt int) (int, error) {
	body, err := s.body(d, attempt)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.AckDeadline)
	defer cancel()
	processing := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { // on the way of Do, not beside it
			if code == http.StatusProcessing {
				processing = true
				return errProcessing
			}
			return nil
		},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("making request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "CloudPubSub-Google")
	resp, err := s.cloud.web.client.Do(r)
	if err != nil {
		if processing {
			return http.StatusProcessing, nil
		}
		return 0, fmt.Errorf("sending request: %w", err)
	}
	defer resp.Body.Close()
	// Read so that the connection can be used again; what it says is not looked
	// at, and an answer cut off after its status is an answer.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, nil
}

func (s *Subscription) body(d *delivery, attempt int) ([]byte, error) {
	m := d.message
	e := envelope{Subscription: s.name, Message: envelopeMessage{
		Attributes: m.Attributes, Data: m.Data, MessageID: m.ID, MessageIDSnake: m.ID,
		OrderingKey: m.OrderingKey, PublishTime: m.PublishTime, PublishTimeSnake: m.PublishTime,
	}}
	if s.p.MaxAttempts > 0 {
		e.DeliveryAttempt = attempt
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("writing envelope: %w", err)
	}
	return body, nil
}

// forward publishes the message again, under a new id and with the attributes
// that Pub/Sub adds.
// Source: https://docs.cloud.google.com/pubsub/docs/handling-failures#track-delivery-attempts
func (s *Subscription) forward(ctx context.Context, d *delivery, attempts int) error {
	attrs := maps.Clone(d.message.Attributes)
	if attrs == nil {
		attrs = map[string]string{}
	}
	attrs["CloudPubSubDeadLetterSourceDeliveryCount"] = strconv.Itoa(attempts)
	attrs["CloudPubSubDeadLetterSourceSubscription"] = s.p.ID
	attrs["CloudPubSubDeadLetterSourceSubscriptionProject"] = s.cloud.opts.Project
	attrs["CloudPubSubDeadLetterSourceTopicPublishTime"] = d.message.PublishTime.Format("2006-01-02T15:04:05.000-07:00")
	_, err := pubsubpb.NewPublisherClient(s.cloud.conn).Publish(ctx, &pubsubpb.PublishRequest{
		Topic: s.cloud.topic(s.p.DeadLetterTopic),
		Messages: []*pubsubpb.PubsubMessage{{
			Data: d.message.Data, Attributes: attrs, OrderingKey: d.message.OrderingKey,
		}},
	})
	if err != nil {
		return fmt.Errorf("publishing to %s: %w", s.p.DeadLetterTopic, err)
	}
	return nil
}
