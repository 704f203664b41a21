package push_test

import "net/http"

// jsonHeader is what comes with a wrapped push.
func jsonHeader() http.Header {
	return header(
		"Content-Type", "application/json",
		"User-Agent", "CloudPubSub-Google",
		"Authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
		"X-Cloud-Trace-Context", "b637a4a25755adafd922090e3c844cee/379846021913007296;o=1",
	)
}

// eventarcHeader is what comes with a push by Eventarc.
func eventarcHeader() http.Header {
	h := jsonHeader()
	set(h,
		"Ce-Id", "2070443601311540",
		"Ce-Source", "//pubsub.googleapis.com/projects/my-project/topics/flights-events",
		"Ce-Specversion", "1.0",
		"Ce-Time", "2021-02-26T19:13:55.749Z",
		"Ce-Type", "google.cloud.pubsub.topic.v1.messagePublished",
	)
	return h
}

// unwrappedHeader is what comes with an unwrapped push with metadata, of a
// message with the attributes content-type and Origin.
func unwrappedHeader() http.Header {
	h := jsonHeader()
	set(h,
		"x-goog-pubsub-subscription-name", "projects/my-project/subscriptions/flights-events",
		"x-goog-pubsub-message-id", "2070443601311540",
		"x-goog-pubsub-publish-time", "2021-02-26T19:13:55.749Z",
		"x-goog-pubsub-ordering-key", "some-key",
		"Origin", "SEA",
	)
	return h
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	set(h, pairs...)
	return h
}

func set(h http.Header, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}
