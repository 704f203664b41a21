package emulator

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
)

// StreamSettings choose the behaviour of a table's change stream in points in
// which the service's varies or is not known. The zero value chooses the usual
// one. They are not kept in a DataDir.
type StreamSettings struct {
	// ChunkBytes is about how many bytes of mutations one message carries; a
	// longer record, and a longer cell value, comes in several. 0 is 1 MiB.
	ChunkBytes int

	// EqualCommitTimes gives changes that are made at the same time of the
	// emulator's clock the same commit time. Without it each change of a table
	// has a later one than those before.
	EqualCommitTimes bool

	// LowWatermark, unless zero, is the low watermark that every message
	// carries: it stalls there, or falls back to it.
	LowWatermark time.Time

	// SlowReader, unless zero, ends a stream with ABORTED if it has waited for
	// its client to read for that long, in real time.
	SlowReader time.Duration

	// OmitNewPartitions leaves new_partitions out of a CloseStream where each
	// is the range of its token.
	OmitNewPartitions bool

	// WideTokens names, in a CloseStream, the whole new partition as the one
	// of a token that resumes a part of it, as the service once did.
	WideTokens bool

	// The codes of refusals for which the service's code is not known. 0 (OK)
	// stands for the usual code, which follows the colon.
	Disabled     codes.Code // no change stream: FAILED_PRECONDITION
	MultiCluster codes.Code // the app profile does not route to one cluster: FAILED_PRECONDITION
	BadStart     codes.Code // start time in the future, or from before the stream: INVALID_ARGUMENT
	Expired      codes.Code // start time or token outside retention: INVALID_ARGUMENT
	BadToken     codes.Code // token of another partition, table or stream, or of none: INVALID_ARGUMENT
}

// defaultChunkBytes is the size of a message's mutations unless it is set. The
// service's is not known.
const defaultChunkBytes = 1 << 20

func (s StreamSettings) orDefaults() StreamSettings {
	s.ChunkBytes = cmp.Or(s.ChunkBytes, defaultChunkBytes)
	s.Disabled = cmp.Or(s.Disabled, codes.FailedPrecondition)
	s.MultiCluster = cmp.Or(s.MultiCluster, codes.FailedPrecondition)
	s.BadStart = cmp.Or(s.BadStart, codes.InvalidArgument)
	s.Expired = cmp.Or(s.Expired, codes.InvalidArgument)
	s.BadToken = cmp.Or(s.BadToken, codes.InvalidArgument)
	return s
}

// lowWatermark is the low watermark to send, in microseconds, if it would be
// watermark without the settings.
func (s StreamSettings) lowWatermark(watermark int64) int64 {
	if s.LowWatermark.IsZero() {
		return watermark
	}
	return s.LowWatermark.UnixMicro()
}

// Stream returns the settings of the change stream of a table, which is named
// in full, as they were set.
func (e *Emulator) Stream(table string) (StreamSettings, error) {
	t, err := e.table(table)
	if err != nil {
		return StreamSettings{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settings, nil
}

// SetStream replaces the settings of the change stream of a table, which is
// named in full. Open streams take them from their next message on. It is an
// error if there is no such table, or a size or duration is negative.
func (e *Emulator) SetStream(table string, s StreamSettings) error {
	if s.ChunkBytes < 0 || s.SlowReader < 0 {
		return fmt.Errorf("setting the change stream of %s: sizes and durations must not be negative", table)
	}
	t, err := e.table(table)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settings = s
	t.wakeReaders()
	return nil
}

// jsonStream is StreamSettings as the control API writes them.
type jsonStream struct {
	Table             string       `json:"table,omitempty"`
	ChunkBytes        int          `json:"chunkBytes,omitempty"`
	EqualCommitTimes  bool         `json:"equalCommitTimes,omitempty"`
	LowWatermark      *time.Time   `json:"lowWatermark,omitempty"`
	SlowReader        jsonDuration `json:"slowReader,omitempty"`
	OmitNewPartitions bool         `json:"omitNewPartitions,omitempty"`
	WideTokens        bool         `json:"wideTokens,omitempty"`
	Disabled          jsonCode     `json:"disabled,omitempty"`
	MultiCluster      jsonCode     `json:"multiCluster,omitempty"`
	BadStart          jsonCode     `json:"badStart,omitempty"`
	Expired           jsonCode     `json:"expired,omitempty"`
	BadToken          jsonCode     `json:"badToken,omitempty"`
}

func (j jsonStream) settings() StreamSettings {
	s := StreamSettings{
		ChunkBytes: j.ChunkBytes, EqualCommitTimes: j.EqualCommitTimes, SlowReader: time.Duration(j.SlowReader),
		OmitNewPartitions: j.OmitNewPartitions, WideTokens: j.WideTokens,
		Disabled: codes.Code(j.Disabled), MultiCluster: codes.Code(j.MultiCluster), BadStart: codes.Code(j.BadStart),
		Expired: codes.Code(j.Expired), BadToken: codes.Code(j.BadToken),
	}
	if j.LowWatermark != nil {
		s.LowWatermark = *j.LowWatermark
	}
	return s
}

func newJSONStream(s StreamSettings) jsonStream {
	j := jsonStream{
		ChunkBytes: s.ChunkBytes, EqualCommitTimes: s.EqualCommitTimes, SlowReader: jsonDuration(s.SlowReader),
		OmitNewPartitions: s.OmitNewPartitions, WideTokens: s.WideTokens,
		Disabled: jsonCode(s.Disabled), MultiCluster: jsonCode(s.MultiCluster), BadStart: jsonCode(s.BadStart),
		Expired: jsonCode(s.Expired), BadToken: jsonCode(s.BadToken),
	}
	if !s.LowWatermark.IsZero() {
		j.LowWatermark = &s.LowWatermark
	}
	return j
}

func (e *Emulator) controlStream(w http.ResponseWriter, r *http.Request) {
	s, err := e.Stream(r.URL.Query().Get("table"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	writeJSON(w, newJSONStream(s))
}

func (e *Emulator) controlSetStream(w http.ResponseWriter, r *http.Request) {
	var j jsonStream
	if !readJSON(w, r, &j) {
		return
	}
	if err := e.SetStream(j.Table, j.settings()); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
