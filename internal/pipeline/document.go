package pipeline

// The document types are the file's shape. Their tags hold everything that is
// said of a field without looking at another: its name, whether it must be there,
// its default, its bounds, its words. The decoder, the JSON Schema and the
// reference table all read them, so that the three agree.

type document struct {
	at
	Version         count           `key:"version" need:"y" min:"1" max:"1" doc:"the version of this format"`
	Name            text            `key:"name" need:"y" shape:"pipeline" doc:"prefixes topics, services, ledger documents and metrics"`
	Bigtable        bigtableDoc     `key:"bigtable" doc:"the defaults of the tables"`
	CredentialsFile text            `key:"credentialsFile" doc:"a service account's key file, for Bigtable, Pub/Sub and Firestore; absent: application default credentials"`
	Tables          dict[tableDoc]  `key:"tables" need:"y" min:"1" keys:"table" doc:"the tables, by the name that this file uses"`
	Write           *writeDoc       `key:"write" doc:"messages become rows"`
	Scans           dict[scanDoc]   `key:"scans" keys:"job" doc:"parallel reads of a table, by name"`
	Changes         dict[changeDoc] `key:"changes" keys:"job" doc:"change streams of a table, by name"`
	Tests           []testDoc       `key:"tests" doc:"run by btf test"`
}

type bigtableDoc struct {
	at
	Project  text `key:"project" shape:"project" doc:"BIGTABLE_PROJECT replaces it"`
	Instance text `key:"instance" shape:"instance" doc:"BIGTABLE_INSTANCE replaces it"`
}

type tableDoc struct {
	at
	Project    text            `key:"project" shape:"project" doc:"absent: bigtable.project"`
	Instance   text            `key:"instance" shape:"instance" doc:"absent: bigtable.instance"`
	ID         text            `key:"id" shape:"table" doc:"Bigtable's table id; absent: the name"`
	IDFrom     expr            `key:"idFrom" doc:"computes the table id for each record"`
	IDMatches  pattern         `key:"idMatches" doc:"what a computed id must match in full, or the record fails"`
	Key        encoding        `key:"key" default:"string" doc:"the encoding of the row key"`
	AppProfile text            `key:"appProfile" shape:"profile" doc:"the application profile of writes; absent: the instance's default"`
	View       text            `key:"authorizedView" shape:"view" doc:"an authorized view of the table, through which it is written and scanned"`
	Create     text            `key:"create" default:"never" one:"never|if-needed" doc:"whether a missing table or family is created"`
	NullString text            `key:"nullString" default:"null" doc:"the cell that is a null in columns of text"`
	Families   dict[familyDoc] `key:"families" need:"y" min:"1" keys:"family" doc:"the column families; an undeclared one is refused before sending"`
}

type familyDoc struct {
	at
	GC         *gcDoc         `key:"gc" doc:"the garbage-collection rule; absent: collect nothing"`
	Aggregate  text           `key:"aggregate" one:"sum|min|max|hll" doc:"makes it an aggregate family of int64 inputs"`
	Columns    dict[encoding] `key:"columns" keys:"name" doc:"qualifiers and their encodings; an undeclared qualifier is bytes"`
	Undeclared text           `key:"undeclaredColumns" default:"warn" one:"warn|allow" doc:"whether lint warns of a qualifier that is not among columns, where there are some"`
}

type gcDoc struct {
	at
	MaxVersions  count   `key:"maxVersions" only:"rule" min:"1" max:"2147483647" doc:"keep this many versions of a cell"`
	MaxAge       span    `key:"maxAge" only:"rule" min:"1ms" doc:"keep cells this long"`
	Union        []gcDoc `key:"union" only:"rule" min:"1" doc:"collect what any of these collects; two rules or more"`
	Intersection []gcDoc `key:"intersection" only:"rule" min:"1" doc:"collect what all of these collect; two rules or more"`
}

type writeDoc struct {
	at
	Format      text         `key:"format" default:"json" one:"json|ndjson|cloudevent|mutation" doc:"how records lie in a message"`
	Skip        expr         `key:"skip" doc:"evaluated first; a record for which it holds is acknowledged and written nowhere"`
	Mappings    []mappingDoc `key:"mappings" min:"1" doc:"each whose when holds applies; required except under format: mutation"`
	OnUnmatched text         `key:"onUnmatched" default:"fail" one:"fail|skip|dead-letter" doc:"a record that no mapping takes"`
	OnFailure   text         `key:"onFailure" default:"fail" one:"fail|drop|dead-letter" doc:"a record that can never be written"`
	Ordered     toggle       `key:"ordered" default:"false" doc:"message ordering on the events topic"`
	Limits      limitsDoc    `key:"limits" doc:"what one instance of the function holds"`
	Repair      repairDoc    `key:"repair" doc:"how a missing table or family is waited for"`
}

type limitsDoc struct {
	at
	Batch                 batchDoc    `key:"batch" doc:"one request to Bigtable"`
	InFlight              inFlightDoc `key:"inFlight" doc:"what is accepted and not yet answered, over all tables"`
	ConsecutiveRejections rejections  `key:"consecutiveRejections" default:"100" min:"1" max:"1000000" doc:"rejections with nothing applied between them, after which the stream itself is taken to be wrong"`
	InstanceClients       count       `key:"instanceClients" default:"16" min:"1" max:"1000" doc:"Bigtable instances with an open client"`
	TableIdle             span        `key:"tableIdle" default:"1h" min:"1s" doc:"a table unused for this long is let go"`
}

type batchDoc struct {
	at
	MaxEntries  count `key:"maxEntries" default:"500" min:"1" max:"99999" doc:"rows in a request"`
	MaxBytes    size  `key:"maxBytes" default:"20MiB" min:"1KiB" max:"200MiB" doc:"bytes in a request"`
	Concurrency count `key:"concurrency" default:"4" min:"1" max:"256" doc:"requests in flight per table"`
}

type inFlightDoc struct {
	at
	MaxEntries      count `key:"maxEntries" default:"2500" min:"1" max:"10000000" doc:"rows"`
	MaxBytes        size  `key:"maxBytes" default:"64MiB" min:"1KiB" max:"64GiB" doc:"bytes of rows"`
	MaxRequestBytes size  `key:"maxRequestBytes" default:"96MiB" min:"1KiB" max:"64GiB" doc:"memory reserved for requests: for a short one seven times its length, for a long one the bytes that have arrived and the memory that they become"`
	MaxRecordBytes  size  `key:"maxRecordBytes" default:"64MiB" min:"1KiB" max:"64GiB" doc:"memory that one record may become: values, rows and mutations; one that becomes more is rejected"`
}

type repairDoc struct {
	at
	InitialBackoff span  `key:"initialBackoff" default:"500ms" min:"1ms" max:"1m" doc:"the first pause"`
	MaxBackoff     span  `key:"maxBackoff" default:"10s" min:"1ms" max:"4m" doc:"the longest pause"`
	MaxAttempts    count `key:"maxAttempts" default:"10" min:"1" max:"100" doc:"attempts before the events are refused"`
}

type mappingDoc struct {
	at
	Name         text          `key:"name" need:"y" shape:"label" doc:"names the mapping in errors, metrics and tests"`
	When         expr          `key:"when" doc:"whether the record is taken; absent: always"`
	ForEach      expr          `key:"forEach" doc:"a list; binds item, a row each"`
	Table        text          `key:"table" need:"y" doc:"a name in tables"`
	RowKey       expr          `key:"rowKey" need:"y" doc:"the row's key"`
	Timestamp    expr          `key:"timestamp" doc:"the time of the cells; absent: the message's publish time, to the millisecond"`
	AllowFuture  toggle        `key:"allowFuture" default:"false" doc:"take cell times more than a day ahead, which otherwise fail the record"`
	Dedupe       text          `key:"dedupe" default:"none" one:"none|window|marker" doc:"how a second delivery is recognised"`
	DedupeID     expr          `key:"dedupeId" doc:"what is the same in a second delivery, and tells the contributions to one row apart; absent: the message's id and the record's place in it"`
	MarkerFamily text          `key:"markerFamily" doc:"the family of the markers, with dedupe: marker"`
	Mutations    []mutationDoc `key:"mutations" need:"y" min:"1" doc:"one row, applied atomically, in this order"`
}

type mutationDoc struct {
	at
	When           expr             `key:"when" doc:"whether this mutation applies; absent: always"`
	Set            dict[dict[expr]] `key:"set" inner:"name" only:"operation" min:"1" doc:"family, qualifier, value: writes cells"`
	Add            dict[dict[expr]] `key:"add" inner:"name" only:"operation" min:"1" doc:"family, qualifier, value: adds an input to aggregate cells"`
	Merge          dict[dict[expr]] `key:"merge" inner:"name" only:"operation" min:"1" doc:"family, qualifier, value: merges an accumulator into aggregate cells"`
	DeleteColumns  dict[[]name]     `key:"deleteColumns" only:"operation" min:"1" doc:"family, qualifiers: deletes versions up to the record's time"`
	DeleteFamilies []text           `key:"deleteFamilies" only:"operation" min:"1" doc:"deletes all cells of these families"`
	DeleteRow      toggle           `key:"deleteRow" only:"operation" doc:"true: deletes the row"`
	Replace        text             `key:"replace" one:"older|all" doc:"which other versions a set deletes first; absent: none"`
	From           expr             `key:"from" doc:"deleteColumns: the earliest version to delete"`
	To             expr             `key:"to" doc:"deleteColumns: the version before which to stop"`
	Versions       text             `key:"versions" one:"all" doc:"deleteColumns: all versions"`
	Tombstone      toggle           `key:"tombstone" default:"false" doc:"deleteColumns: write a null at the record's time as well"`
}

type scanDoc struct {
	at
	Table      text         `key:"table" need:"y" doc:"a name in tables"`
	AppProfile text         `key:"appProfile" shape:"profile" doc:"the application profile of the reads; absent: the instance's default"`
	Rows       rowsDoc      `key:"rows" doc:"the rows to read; absent: the whole table"`
	Cells      cellsDoc     `key:"cells" doc:"the cells to read; absent: all"`
	Limit      count        `key:"limit" min:"1" doc:"rows over the whole scan; its splits then run in key order"`
	Fetch      fetchDoc     `key:"fetch" doc:"what is read ahead of the sink"`
	When       expr         `key:"when" doc:"whether a row becomes a record; absent: always"`
	ForEach    expr         `key:"forEach" doc:"a list; binds item, a record each"`
	Emit       *dict[expr]  `key:"emit" min:"1" keys:"output" doc:"the fields of a record; absent: the whole row"`
	OnFailure  text         `key:"onFailure" default:"fail" one:"fail|drop|dead-letter" doc:"a record that cannot be emitted or that the sink refuses for good"`
	OnLargeRow text         `key:"onLargeRow" default:"fail" one:"skip|fail" doc:"a row over the 256 MiB that can be read"`
	Schedule   *scheduleDoc `key:"schedule" doc:"when it starts by itself"`
	To         sinkDoc      `key:"to" need:"y" doc:"where the records go"`
}

type rowsDoc struct {
	at
	Prefixes []name     `key:"prefixes" min:"1" doc:"prefixes of row keys"`
	Ranges   []rangeDoc `key:"ranges" min:"1" doc:"ranges of row keys"`
	Encoding text       `key:"encoding" default:"text" one:"text|base64" doc:"how the keys of this section are written"`
}

type rangeDoc struct {
	at
	Start name `key:"start" doc:"the first row key; absent: from the first row"`
	End   name `key:"end" doc:"the row key before which to stop; absent: to the last row"`
}

type cellsDoc struct {
	at
	Families []text       `key:"families" min:"1" doc:"whole families"`
	Columns  dict[[]name] `key:"columns" min:"1" doc:"family, qualifiers"`
	KeysOnly toggle       `key:"keysOnly" default:"false" doc:"row keys without cells"`
	Versions count        `key:"versions" min:"1" max:"2147483647" doc:"the newest versions of each cell; absent: all"`
	Since    moment       `key:"since" doc:"cells from this time on"`
	Until    moment       `key:"until" doc:"cells before this time"`
	Filter   text         `key:"filter" doc:"a RowFilter in protobuf text, instead of all the others"`
}

type fetchDoc struct {
	at
	MaxRows  count `key:"maxRows" default:"1000" min:"1" max:"1000000" doc:"rows in a batch"`
	MaxBytes size  `key:"maxBytes" default:"8MiB" min:"1KiB" max:"256MiB" doc:"bytes in a batch; a larger row goes alone"`
}

type scheduleDoc struct {
	at
	Cron     text `key:"cron" need:"y" doc:"minute, hour, day of month, month, day of week"`
	TimeZone text `key:"timeZone" default:"Etc/UTC" doc:"a name of the time zone database"`
}

type changeDoc struct {
	at
	Table          text             `key:"table" need:"y" doc:"a name in tables"`
	AppProfile     text             `key:"appProfile" need:"y" shape:"profile" doc:"an application profile with single-cluster routing"`
	Start          start            `key:"start" default:"latest" doc:"where the first run starts: latest, earliest, a time, or a duration such as -2h"`
	End            moment           `key:"end" doc:"the time at which it ends; absent: never"`
	Snapshot       toggle           `key:"snapshot" default:"false" doc:"existing rows first, then every change after them"`
	OnExpired      start            `key:"onExpired" default:"fail" doc:"a position outside retention: fail, earliest, latest or a time"`
	Window         span             `key:"window" default:"55s" min:"1s" max:"85s" doc:"how long one invocation reads"`
	IdleStop       toggle           `key:"idleStop" default:"true" doc:"stop early once caught up"`
	MaxIdle        span             `key:"maxIdle" default:"10m" min:"1m" max:"12h" doc:"the longest pause between visits of an idle partition, if the table has up to 1,666 partitions; in proportion longer if it has more"`
	MaxStreams     count            `key:"maxStreams" default:"32" min:"1" max:"1000" doc:"open reads per invocation"`
	Filter         *changeFilterDoc `key:"filter" doc:"the entries to deliver; absent: all"`
	SelectedCell   *selectedCellDoc `key:"selectedCell" doc:"keyed upserts and deletes of one cell instead of the mutation log"`
	MaxRecordBytes size             `key:"maxRecordBytes" default:"9MiB" min:"1KiB" max:"256MiB" doc:"a larger record fails"`
	When           expr             `key:"when" doc:"whether a change becomes a record; absent: always"`
	ForEach        expr             `key:"forEach" doc:"a list; binds item, a record each"`
	Emit           *dict[expr]      `key:"emit" min:"1" keys:"output" doc:"the fields of a record; absent: the whole change"`
	OnFailure      text             `key:"onFailure" default:"fail" one:"fail|drop|dead-letter" doc:"a record that cannot be emitted or that the sink refuses for good"`
	To             sinkDoc          `key:"to" need:"y" doc:"where the records go"`
}

type changeFilterDoc struct {
	at
	Families   listsDoc `key:"families" doc:"RE2 patterns that match a family's whole name"`
	Qualifiers listsDoc `key:"qualifiers" doc:"RE2 patterns that match all of family:base64(qualifier)"`
	DropEmpty  toggle   `key:"dropEmpty" default:"false" doc:"deliver no change whose entries are all filtered"`
}

type listsDoc struct {
	at
	Include []pattern `key:"include" min:"1" doc:"what to deliver"`
	Exclude []pattern `key:"exclude" min:"1" doc:"what not to deliver"`
}

type selectedCellDoc struct {
	at
	Family    text `key:"family" need:"y" doc:"a family of the table, without a garbage-collection rule"`
	Qualifier name `key:"qualifier" need:"y" doc:"the qualifier; may be empty"`
	Cluster   text `key:"cluster" need:"y" shape:"cluster" doc:"the cluster that writes it"`
	Format    text `key:"format" need:"y" one:"json" doc:"what the cell holds"`
}

type sinkDoc struct {
	at
	PubSub   *pubsubDoc       `key:"pubsub" only:"sink" doc:"messages"`
	HTTP     *httpDoc         `key:"http" only:"sink" doc:"requests"`
	Tasks    *tasksDoc        `key:"tasks" only:"sink" doc:"Cloud Tasks"`
	GCS      *gcsDoc          `key:"gcs" only:"sink" doc:"objects in Cloud Storage; scans only"`
	Bigtable *bigtableSinkDoc `key:"bigtable" only:"sink" doc:"rows of another table"`
	Log      *logDoc          `key:"log" only:"sink" doc:"log lines that say sizes, for trying out"`
}

type pubsubDoc struct {
	at
	Topic      text       `key:"topic" need:"y" shape:"topic" doc:"not one of the pipeline's own topics"`
	OrderBy    expr       `key:"orderBy" doc:"the ordering key; absent: none"`
	Attributes dict[expr] `key:"attributes" keys:"attribute" doc:"attributes of the message"`
	CDC        toggle     `key:"cdc" default:"false" doc:"the change fields of a BigQuery subscription; with selectedCell"`
}

type httpDoc struct {
	at
	URL     text       `key:"url" need:"y" shape:"url" doc:"where to send"`
	Path    expr       `key:"path" doc:"appended to the URL"`
	Method  text       `key:"method" default:"POST" one:"POST|PUT|PATCH|DELETE" doc:"the request's method"`
	Headers dict[text] `key:"headers" keys:"header" shape:"headerValue" doc:"fixed headers"`
	Batch   count      `key:"batch" default:"1" min:"1" max:"1000" doc:"records in a request"`
	Auth    *authDoc   `key:"auth" doc:"oidc, {bearer: SECRET} or {hmac: SECRET}; absent: none"`
	Timeout span       `key:"timeout" default:"10s" min:"100ms" max:"60s" doc:"how long a request may take"`
}

type tasksDoc struct {
	at
	Queue          text `key:"queue" need:"y" shape:"queue" doc:"the queue's id"`
	Location       text `key:"location" need:"y" shape:"location" doc:"the queue's location"`
	URL            text `key:"url" need:"y" shape:"url" doc:"where the task is sent"`
	ServiceAccount text `key:"serviceAccount" shape:"account" doc:"whose OIDC token the task carries; absent: none"`
}

type gcsDoc struct {
	at
	Bucket      text `key:"bucket" need:"y" shape:"bucket" doc:"the bucket"`
	Prefix      text `key:"prefix" shape:"object" doc:"starts the objects' names"`
	Format      text `key:"format" default:"ndjson" one:"ndjson|avro|parquet" doc:"the objects' format"`
	Compression text `key:"compression" default:"none" one:"none|gzip|snappy|zstd" doc:"ndjson: none, gzip, zstd; avro: none, snappy, zstd; parquet: any"`
}

type bigtableSinkDoc struct {
	at
	Table  text `key:"table" need:"y" doc:"a name in tables"`
	RowKey expr `key:"rowKey" doc:"the copy's row key; absent: the same"`
}

type logDoc struct{ at }

type testDoc struct {
	at
	Name    text         `key:"name" need:"y" shape:"title" doc:"what it shows"`
	Message *messageDoc  `key:"message" only:"input" doc:"a message for write"`
	Row     *rowDoc      `key:"row" only:"input" doc:"a row for a scan's emit"`
	Change  *changeInDoc `key:"change" only:"input" doc:"a change that a change stream reads"`
	Expect  expectDoc    `key:"expect" need:"y" doc:"what comes of it"`
}

type messageDoc struct {
	at
	ID           text       `key:"id" default:"test" doc:"the message's id"`
	PublishTime  moment     `key:"publishTime" default:"2026-01-01T00:00:00Z" doc:"when it was published"`
	OrderingKey  text       `key:"orderingKey" doc:"its ordering key"`
	Subscription text       `key:"subscription" default:"test" doc:"the subscription that delivers it"`
	Attributes   dict[text] `key:"attributes" doc:"its attributes"`
	Data         literal    `key:"data" only:"body" doc:"its body; becomes JSON"`
	Raw          name       `key:"raw" only:"body" doc:"its body as it is: text, or {base64: …}"`
}

type rowDoc struct {
	at
	Scan  text                `key:"scan" need:"y" doc:"a name in scans"`
	Key   literal             `key:"key" need:"y" doc:"the row key"`
	Cells dict[dict[literal]] `key:"cells" inner:"name" doc:"family, qualifier, newest value"`
}

type changeInDoc struct {
	at
	Changes      text       `key:"changes" need:"y" doc:"a name in changes"`
	RowKey       literal    `key:"rowKey" need:"y" doc:"the row key"`
	Type         text       `key:"type" default:"USER" one:"USER|GARBAGE_COLLECTION" doc:"who changed it"`
	Cluster      text       `key:"cluster" shape:"cluster" doc:"where it was written"`
	CommitTime   moment     `key:"commitTime" default:"2026-01-01T00:00:00Z" doc:"when"`
	TieBreaker   count      `key:"tieBreaker" default:"0" max:"2147483647" doc:"orders changes of one commit time"`
	LowWatermark moment     `key:"lowWatermark" default:"2026-01-01T00:00:00Z" doc:"the stream's estimate"`
	Entries      []entryDoc `key:"entries" doc:"the entries, in order"`
}

type entryDoc struct {
	at
	Kind      text      `key:"kind" need:"y" one:"SET_CELL|DELETE_CELLS|DELETE_FAMILY|ADD_TO_CELL|MERGE_TO_CELL" doc:"what it does"`
	Family    text      `key:"family" need:"y" shape:"family" doc:"the family"`
	Qualifier name      `key:"qualifier" doc:"the qualifier; of all but DELETE_FAMILY"`
	Timestamp moment    `key:"timestamp" doc:"the cell's time"`
	Value     literal   `key:"value" doc:"the cell's value or the input"`
	Range     *timesDoc `key:"range" doc:"DELETE_CELLS: the times deleted; absent: all"`
}

type timesDoc struct {
	at
	From moment `key:"from" doc:"inclusive; absent: unbounded"`
	To   moment `key:"to" doc:"exclusive; absent: unbounded"`
}

type expectDoc struct {
	at
	Skipped  toggle        `key:"skipped" default:"false" doc:"true: written nowhere by write.skip or onUnmatched"`
	Rows     *[]wantRowDoc `key:"rows" doc:"the rows written, all of them"`
	Rejected []rejectedDoc `key:"rejected" min:"1" doc:"the records that fail"`
	Records  *[]literal    `key:"records" doc:"what emit makes, all of it"`
}

type wantRowDoc struct {
	at
	Table     text              `key:"table" need:"y" doc:"a name in tables; of a computed one the id"`
	RowKey    literal           `key:"rowKey" need:"y" doc:"the row key"`
	Timestamp moment            `key:"timestamp" doc:"the time of the cells; absent: any"`
	Mutations []wantMutationDoc `key:"mutations" need:"y" min:"1" doc:"what is done to the row, all of it, in order"`
}

type wantMutationDoc struct {
	at
	Set            dict[dict[literal]] `key:"set" inner:"name" only:"operation" min:"1" doc:"family, qualifier, value"`
	Add            dict[dict[literal]] `key:"add" inner:"name" only:"operation" min:"1" doc:"family, qualifier, input"`
	Merge          dict[dict[literal]] `key:"merge" inner:"name" only:"operation" min:"1" doc:"family, qualifier, accumulator in base64"`
	DeleteColumns  dict[[]name]        `key:"deleteColumns" only:"operation" min:"1" doc:"family, qualifiers"`
	DeleteFamilies []text              `key:"deleteFamilies" only:"operation" min:"1" doc:"families"`
	DeleteRow      toggle              `key:"deleteRow" only:"operation" doc:"true"`
	Replace        text                `key:"replace" one:"older|all" doc:"as in write"`
	From           moment              `key:"from" doc:"the earliest version deleted"`
	To             moment              `key:"to" doc:"the version before which deleting stops"`
	Versions       text                `key:"versions" one:"all" doc:"all versions"`
	Tombstone      toggle              `key:"tombstone" default:"false" doc:"a null is written as well"`
}

type rejectedDoc struct {
	at
	Mapping text `key:"mapping" doc:"the mapping that failed; absent: none took the record, or it was no record"`
	At      text `key:"at" doc:"the field that failed, such as rowKey or mutations[0].set.cf.total; absent: any"`
	Error   text `key:"error" need:"y" shape:"part" doc:"part of the error's text"`
}
