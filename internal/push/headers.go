package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

// Metadata headers of payload unwrapping, in Go's canonical form.
// Source: https://docs.cloud.google.com/pubsub/docs/payload-unwrapping
const (
	headerPrefix       = "X-Goog-Pubsub-"
	headerMessageID    = headerPrefix + "Message-Id"
	headerPublishTime  = headerPrefix + "Publish-Time"
	headerOrderingKey  = headerPrefix + "Ordering-Key"
	headerSubscription = headerPrefix + "Subscription-Name"
	// What Google's emulator (gcloud 528) writes instead.
	headerEmulatorKey = "X-Goog-Ordering-Key"
)

// isUnwrapped reports whether the body is the payload itself. Such a payload is
// not looked into: it may itself have the form of an envelope, and its
// attributes may be those of a CloudEvent.
func isUnwrapped(h http.Header) bool {
	return len(h[headerMessageID]) > 0
}

// readMetadata fills all of m but its data.
func readMetadata(h http.Header, m *Message) error {
	m.ID = h.Get(headerMessageID)
	m.OrderingKey = cmp.Or(h.Get(headerOrderingKey), h.Get(headerEmulatorKey))
	m.Subscription = h.Get(headerSubscription)
	for _, name := range []string{headerMessageID, headerPublishTime, headerOrderingKey, headerSubscription, headerEmulatorKey} {
		if len(h[name]) > 1 { // one of them is not Pub/Sub's
			return fmt.Errorf("header %s stands twice", strings.ToLower(name))
		}
	}
	var err error
	if m.Attributes, err = attributes(h); err != nil {
		return err
	}
	if m.ID == "" {
		return errors.New("header x-goog-pubsub-message-id is empty")
	}
	text := h.Get(headerPublishTime)
	if text == "" {
		return nil
	}
	published, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("header x-goog-pubsub-publish-time is not an RFC 3339 time")
	}
	m.PublishTime = published.UTC()
	return nil
}

// attributes reads the attributes among the headers. Two whose names differ in case only
// are one header with two values, in an order that is Pub/Sub's and differs from delivery
// to delivery: if the values differ, too, neither is taken.
func attributes(h http.Header) (map[string]string, error) {
	var attrs map[string]string
	for name, values := range h {
		if len(values) == 0 || isTransport(name) {
			continue
		}
		if slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
			return nil, errors.New("two attributes with different values have names that differ in case only, or not at all")
		}
		if attrs == nil {
			attrs = make(map[string]string)
		}
		attrs[strings.ToLower(name)] = values[0]
	}
	return attrs, nil
}

// isTransport reports whether a header is written by Pub/Sub, by the proxies on
// the way or by the platform, rather than from an attribute. Content-Type is
// not among them: of a CloudEvent it says the type of the data.
func isTransport(name string) bool {
	switch name {
	case "Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language",
		"Authorization", "Proxy-Authorization", "X-Serverless-Authorization", "Cookie",
		"Connection", "Keep-Alive", "Content-Length", "Content-Encoding", "Transfer-Encoding",
		"Te", "Trailer", "Upgrade", "Expect", "Host", "From", "User-Agent",
		"Forwarded", "Via", "Function-Execution-Id",
		"Traceparent", "Tracestate", "X-Cloud-Trace-Context", headerEmulatorKey:
		return true
	}
	for _, prefix := range []string{headerPrefix, "X-Forwarded-", "X-Appengine-", "X-Google-", "X-Envoy-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isStructured reports whether the body is a CloudEvent in structured mode. A batch of
// them is none: one request is one message.
// Source: HTTP Protocol Binding for CloudEvents 1.0.2, 3.2.
func isStructured(h http.Header) bool {
	text := h.Get("Content-Type")
	if text == "application/json" { // almost every push, and parsing it takes half a microsecond
		return false
	}
	media, _, err := mime.ParseMediaType(text)
	return err == nil && media == "application/cloudevents+json"
}

func isCloudEvent(h http.Header) bool {
	return len(h["Ce-Specversion"]) > 0 || len(h["Ce-Id"]) > 0
}

// checkCloudEvent reads the event's attributes with the SDK's binding for one
// request. The SDK's receiver is not used: it pairs requests wrongly when
// several are under way (cloudevents/sdk-go#1224).
func checkCloudEvent(h http.Header) error {
	for name, values := range h {
		if strings.HasPrefix(name, "Ce-") && len(values) > 1 {
			return errors.New("an attribute of the CloudEvent stands twice")
		}
	}
	msg := cehttp.NewMessage(h, nil)
	if msg.ReadEncoding() != binding.EncodingBinary {
		return errors.New("CloudEvent headers without a known ce-specversion and a content type of their own")
	}
	event, err := binding.ToEvent(context.Background(), msg)
	if err != nil {
		return errors.New("CloudEvent attributes cannot be read")
	}
	if event.Validate() != nil {
		// The SDK's texts quote values.
		return fmt.Errorf("CloudEvent attributes are not valid in version %s", event.SpecVersion())
	}
	return nil
}
