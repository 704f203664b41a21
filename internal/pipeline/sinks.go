package pipeline

import "time"

// Sink is where records go. Exactly one field is set.
type Sink struct {
	Pos      Pos
	PubSub   *PubSubSink
	HTTP     *HTTPSink
	Tasks    *TasksSink
	GCS      *GCSSink
	Bigtable *BigtableSink
	Log      bool
}

// Kind returns the sink's name in the file.
func (s Sink) Kind() string {
	switch {
	case s.PubSub != nil:
		return "pubsub"
	case s.HTTP != nil:
		return "http"
	case s.Tasks != nil:
		return "tasks"
	case s.GCS != nil:
		return "gcs"
	case s.Bigtable != nil:
		return "bigtable"
	case s.Log:
		return "log"
	}
	return ""
}

// PubSubSink publishes a message per record.
type PubSubSink struct {
	Topic      string // an id, or projects/PROJECT/topics/ID
	OrderBy    Expr   // zero: no ordering key
	Attributes []EmitField
	CDC        bool // with BigQuery's change fields
}

// HTTPSink sends requests. Secrets are ids in Secret Manager, or full resource
// names.
type HTTPSink struct {
	URL     string
	Path    Expr // zero: nothing is appended; never with Batch > 1
	Method  string
	Headers []Header
	Batch   int // records in a request
	Auth    Auth
	Timeout time.Duration
}

// Header is one fixed header of a request.
type Header struct{ Name, Value string }

// Auth is how a request proves who sends it. At most one field is set.
type Auth struct {
	OIDC            bool
	Bearer, HMACKey string
}

// TasksSink makes a task in Cloud Tasks per record.
type TasksSink struct {
	Queue, Location, URL string
	ServiceAccount       string // empty: the task carries no token
}

// GCSSink writes objects to Cloud Storage.
type GCSSink struct {
	Bucket, Prefix string
	Format         string // ndjson, avro or parquet
	Compression    string // none, gzip, snappy or zstd
}

// BigtableSink writes the cells of the source, with their times, to another table.
type BigtableSink struct {
	Table  *Table // has a literal id
	RowKey Expr   // zero: the source's row key
}
