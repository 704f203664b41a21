package pipeline

import (
	"net/url"
	"slices"
	"strings"
)

// sinkUse is what a sink is fed from.
type sinkUse struct {
	changes  bool // a change stream; else a scan
	selected bool // by selectedCell
	table    *Table
	families []*Family // those it reads, as far as the file tells
	emit     *dict[expr]
	forEach  expr
}

func (b *builder) sink(doc *sinkDoc, use sinkUse) Sink {
	s := Sink{Pos: doc.pos, Log: doc.Log != nil}
	if doc.PubSub != nil {
		s.PubSub = b.pubsub(doc.PubSub, use)
	}
	if doc.HTTP != nil {
		s.HTTP = b.http(doc.HTTP)
	}
	if doc.Tasks != nil {
		b.url(doc.Tasks.URL, doc.Tasks.ServiceAccount.given())
		s.Tasks = &TasksSink{
			Queue: doc.Tasks.Queue.v, Location: doc.Tasks.Location.v,
			URL: doc.Tasks.URL.v, ServiceAccount: doc.Tasks.ServiceAccount.v,
		}
	}
	if doc.GCS != nil {
		s.GCS = b.gcs(doc.GCS, use)
	}
	if doc.Bigtable != nil {
		s.Bigtable = b.bigtable(doc.Bigtable, use)
	}
	return s
}

func (b *builder) pubsub(doc *pubsubDoc, use sinkUse) *PubSubSink {
	if doc.Topic.ok() {
		id := TopicID(doc.Topic.v)
		project := strings.TrimSuffix(strings.TrimPrefix(doc.Topic.v, "projects/"), "/topics/"+id)
		own := id == doc.Topic.v || project == b.projectOf()
		if own && slices.Contains(b.p.OwnTopics(), id) {
			b.fail(doc.Topic.at, "%q is one of the pipeline's own topics: records sent to it would come back as work", id)
		}
		if fault := TopicFault(doc.Topic.v); fault != "" {
			b.fail(doc.Topic.at, "%q %s", id, fault)
		}
	}
	for _, a := range doc.Attributes.entries {
		if strings.HasPrefix(a.key, "goog") {
			b.fail(a.at, "%q starts with goog, which Pub/Sub keeps for itself", a.key)
		}
	}
	if doc.CDC.v && !use.selected {
		b.fail(doc.CDC.at, "needs selectedCell beside the sink: only its upserts and deletes have BigQuery's change fields")
	}
	return &PubSubSink{
		Topic: doc.Topic.v, OrderBy: doc.OrderBy.v, Attributes: emitFields(&doc.Attributes), CDC: doc.CDC.v,
	}
}

// projectOf returns the project of the pipeline's own topics, as far as the file
// tells it.
func (b *builder) projectOf() string {
	if b.options.Project != "" {
		return b.options.Project
	}
	return b.project
}

// url checks an address; a secret is sent in the clear to this machine only.
func (b *builder) url(t text, secret bool) {
	if !t.ok() {
		return
	}
	u, err := url.Parse(t.v)
	if err != nil || u.Host == "" {
		b.fail(t.at, "%q is no URL: write it as https://example.com/hook", t.v)
		return
	}
	local := []string{"localhost", "127.0.0.1", "::1"}
	if secret && u.Scheme == "http" && !slices.Contains(local, u.Hostname()) {
		b.fail(t.at, "http would carry the credential in the clear: use https")
	}
}

// ownHeaders are the headers that the sink sets itself, in lower case.
var ownHeaders = []string{"authorization", "content-encoding", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding"}

func (b *builder) http(doc *httpDoc) *HTTPSink {
	b.url(doc.URL, doc.Auth != nil)
	s := &HTTPSink{
		URL: doc.URL.v, Path: doc.Path.v, Method: doc.Method.v, Batch: int(doc.Batch.v), Timeout: doc.Timeout.v,
	}
	for _, h := range doc.Headers.entries {
		if slices.Contains(ownHeaders, strings.ToLower(h.key)) {
			b.fail(h.at, "the sink sets this header itself; for Authorization use auth")
		}
		s.Headers = append(s.Headers, Header{Name: h.key, Value: h.value.v})
	}
	switch {
	case doc.Path.given() && doc.Batch.v > 1:
		b.fail(doc.Path.at, "stands beside batch: the records of one request cannot have a path each")
	case doc.Path.given() && strings.Contains(doc.URL.v, "?"):
		b.fail(doc.Path.at, "stands beside a url with a query: nothing can be appended to it")
	}
	if doc.Auth != nil && doc.Auth.ok() {
		secret := doc.Auth.secret
		s.Auth = Auth{Bearer: secret.Bearer.v, HMACKey: secret.HMAC.v}
		s.Auth.OIDC = !secret.Bearer.given() && !secret.HMAC.given()
	}
	return s
}

// compressions are what each format of an object allows.
var compressions = map[string][]string{
	"ndjson":  {"none", "gzip", "zstd"},
	"avro":    {"none", "snappy", "zstd"},
	"parquet": {"none", "gzip", "snappy", "zstd"},
}

func (b *builder) gcs(doc *gcsDoc, use sinkUse) *GCSSink {
	if use.changes {
		b.fail(doc.at, "is for scans only: objects are cut by ranges of rows, which a change stream has not")
	}
	if allowed, known := compressions[doc.Format.v]; known && doc.Compression.ok() && !slices.Contains(allowed, doc.Compression.v) {
		b.fail(doc.Compression.at, "%s does not go with %s: use %s", doc.Compression.v, doc.Format.v, strings.Join(allowed, ", "))
	}
	return &GCSSink{Bucket: doc.Bucket.v, Prefix: doc.Prefix.v, Format: doc.Format.v, Compression: doc.Compression.v}
}

func (b *builder) bigtable(doc *bigtableSinkDoc, use sinkUse) *BigtableSink {
	s := &BigtableSink{
		Table:  b.fixed(doc.Table, "there is no event to compute it from, so give the copy a table with a fixed id"),
		RowKey: doc.RowKey.v,
	}
	if use.changes && s.Table != nil && s.Table == use.table {
		b.fail(doc.Table.at, "is the table of the change stream: every change would make another")
	}
	if s.Table != nil {
		b.copies(doc, s.Table, use.families)
	}
	if use.selected {
		b.fail(doc.at, "does not go with selectedCell: it copies cells as they are")
	}
	if use.emit != nil {
		b.fail(use.emit.at, "does not go with a bigtable sink, which copies cells as they are")
	}
	if use.forEach.given() {
		b.fail(use.forEach.at, "does not go with a bigtable sink, which copies cells as they are")
	}
	return s
}

// copies checks that the cells of families fit into a table as they are.
func (b *builder) copies(doc *bigtableSinkDoc, to *Table, families []*Family) {
	for _, f := range families {
		if f.Aggregate != NoAggregate {
			b.fail(doc.at, "family %q is an aggregate, whose cells cannot be copied: leave it out of what is read", f.Name)
			continue
		}
		if into := b.familyOf(to, f.Name, doc.Table.at); into != nil && into.Aggregate != NoAggregate {
			b.fail(doc.Table.at, "family %q of table %q is an aggregate, into which no cell can be copied", f.Name, to.Name)
		}
	}
}
