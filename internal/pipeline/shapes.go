package pipeline

import (
	"fmt"
	"regexp"
	"strings"
)

// shape is a form that some text of the file must have.
type shape struct {
	what string // what the text is
	rule string // what to write
	form *regexp.Regexp
	// quiet keeps what is written out of the error: it may be a secret in the
	// wrong place.
	quiet bool
}

// fault says what is wrong with a text that does not have the form.
func (s shape) fault(text string) string {
	if s.quiet {
		return "no " + s.what + ": " + s.rule
	}
	return fmt.Sprintf("%q is no %s: %s", text, s.what, s.rule)
}

// shapes are the forms by the name that the struct tags use. Sources: the field
// comments of Bigtable's admin API, and the resource naming rules of Pub/Sub,
// Cloud Storage, Cloud Tasks, IAM and Secret Manager.
var shapes = map[string]shape{
	"pipeline": {what: "pipeline name", rule: "2 to 17 lower-case letters, digits and dashes, a letter first and no dash last",
		form: regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}[a-z0-9]$`)},
	"label": {what: "name", rule: "1 to 63 letters, digits, dashes, dots and underscores, a letter or digit first",
		form: regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,62}$`)},
	"job": {what: "name", rule: "1 to 40 lower-case letters, digits and dashes, a letter first and no dash last",
		form: regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)},
	"project": {what: "project id", rule: "as the Cloud console shows it, without projects/",
		// Shorter ones than the service gives out stand for an emulator's.
		form: regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]{0,62}[a-z0-9])?$`)},
	"instance": {what: "instance id", rule: "lower-case letters, digits and dashes, without instances/",
		form: regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,31}[a-z0-9])?$`)},
	"table": {what: "table id", rule: "1 to 50 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}$`)},
	"family": {what: "family name", rule: "1 to 64 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,63}$`)},
	"profile": {what: "application profile id", rule: "1 to 50 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}$`)},
	"view": {what: "authorized view id", rule: "1 to 50 letters, digits, dashes, dots and underscores, no dash or dot first",
		form: regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,49}$`)},
	"topic": {what: "topic", rule: "the topic's id or projects/PROJECT/topics/ID",
		form: regexp.MustCompile(`^(projects/[^/\s]+/topics/)?[A-Za-z][-A-Za-z0-9._~+%]{2,254}$`)},
	"bucket": {what: "bucket name", rule: "3 to 222 lower-case letters, digits, dashes, dots and underscores, without gs://",
		form: regexp.MustCompile(`^[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]$`)},
	"object": {what: "object prefix", rule: "up to 900 characters, not starting with /",
		form: regexp.MustCompile(`^[^/\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]{0,899}$`)},
	"queue": {what: "queue id", rule: "1 to 100 letters, digits and dashes",
		form: regexp.MustCompile(`^[-A-Za-z0-9]{1,100}$`)},
	"location": {what: "location", rule: "such as us-central1",
		form: regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+$`)},
	"account": {what: "service account", rule: "its name, or its address name@project.iam.gserviceaccount.com",
		form: regexp.MustCompile(`^[a-z0-9][-a-z0-9]{0,62}(@[-a-z0-9.]+)?$`)},
	"url": {what: "URL", rule: "such as https://example.com/hook, without a fragment",
		form: regexp.MustCompile(`^https?://[^/\s?#@]+([/?][^\s#]*)?$`)},
	"secret": {what: "secret", rule: "the id of a secret in Secret Manager, or projects/PROJECT/secrets/ID, never the secret itself",
		form: regexp.MustCompile(`^(projects/[^/\s]+/secrets/)?[-_A-Za-z0-9]{1,255}$`), quiet: true},
	"header": {what: "header name", rule: "letters, digits and dashes",
		form: regexp.MustCompile(`^[A-Za-z][-A-Za-z0-9]{0,99}$`)},
	"headerValue": {what: "header value", rule: "printable ASCII",
		form: regexp.MustCompile(`^[\x20-\x7e]*$`), quiet: true},
	"attribute": {what: "attribute name", rule: "1 to 256 characters",
		form: regexp.MustCompile(`^[^\x00-\x1f\x7f-\x9f]{1,256}$`)},
	"output": {what: "field name", rule: "1 to 300 letters, digits and underscores, no digit first",
		form: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,299}$`)},
	"title": {what: "name", rule: "say what the test shows",
		form: regexp.MustCompile(`\S`)},
	"part": {what: "part of an error", rule: "write some of its text, or the test cannot fail",
		form: regexp.MustCompile(`\S`)},
	"cluster": {what: "cluster id", rule: "lower-case letters, digits and dashes",
		form: regexp.MustCompile(`^[a-z][-a-z0-9]{0,28}[a-z0-9]$`)},
}

// TopicID returns the id of a topic, which may be given as projects/PROJECT/topics/ID.
func TopicID(topic string) string { return topic[strings.LastIndexByte(topic, '/')+1:] }

// TopicFault says why a text names no topic that can be published to, without quoting
// it; empty: it does.
func TopicFault(topic string) string {
	switch shape := shapes["topic"]; {
	case !shape.form.MatchString(topic):
		return "is no " + shape.what + ": write " + shape.rule
	case strings.HasPrefix(TopicID(topic), "goog"):
		return "starts with goog, which Pub/Sub keeps for itself"
	}
	return ""
}
