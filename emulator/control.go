package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// Control is the emulator's Go API for faults, clock, tablets, change streams and
// garbage collection over JSON and HTTP, for child processes and other languages;
// docs/emulator.md describes it. It takes requests that name a loopback host
// only and, where they carry a body, JSON only, so that no web page can drive
// it. Serve it on loopback.
func (e *Emulator) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/faults", e.controlFaults)
	mux.HandleFunc("POST /v1/faults", e.controlInject)
	mux.HandleFunc("DELETE /v1/faults", e.controlClear)
	mux.HandleFunc("DELETE /v1/faults/{id}", e.controlRemove)
	mux.HandleFunc("GET /v1/clock", e.controlNow)
	mux.HandleFunc("PUT /v1/clock", e.controlClock)
	mux.HandleFunc("POST /v1/gc", e.controlGC)
	mux.HandleFunc("GET /v1/stream", e.controlStream)
	mux.HandleFunc("PUT /v1/stream", e.controlSetStream)
	mux.HandleFunc("GET /v1/tablets", e.controlTablets)
	mux.HandleFunc("POST /v1/tablets/{change}", e.controlChangeTablets)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "the control API answers on loopback only", http.StatusForbidden)
			return
		}
		if (r.Method == http.MethodPost || r.Method == http.MethodPut) && r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// controlBody is the largest request body, in bytes.
const controlBody = 1 << 20

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, controlBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		http.Error(w, fmt.Sprintf("reading the request: %v", err), http.StatusBadRequest)
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		// The client is gone: there is no one to tell.
		return
	}
}

// jsonFault is a Fault as the control API writes it.
type jsonFault struct {
	ID              int          `json:"id,omitempty"`
	Hits            int          `json:"hits,omitempty"`
	Method          string       `json:"method,omitempty"`
	Table           string       `json:"table,omitempty"`
	Skip            int          `json:"skip,omitempty"`
	Count           int          `json:"count,omitempty"`
	Delay           jsonDuration `json:"delay,omitempty"`
	Hang            bool         `json:"hang,omitempty"`
	Code            jsonCode     `json:"code,omitempty"`
	Message         string       `json:"message,omitempty"`
	After           bool         `json:"after,omitempty"`
	Entries         []int        `json:"entries,omitempty"`
	RetryDelay      jsonDuration `json:"retryDelay,omitempty"`
	Omit            []int        `json:"omit,omitempty"`
	Cut             bool         `json:"cut,omitempty"`
	CutAfter        int          `json:"cutAfter,omitempty"`
	RateLimitFactor float64      `json:"rateLimitFactor,omitempty"`
	RateLimitPeriod jsonDuration `json:"rateLimitPeriod,omitempty"`
}

func (j jsonFault) fault() Fault {
	return Fault{
		Method: j.Method, Table: j.Table, Skip: j.Skip, Count: j.Count,
		Delay: time.Duration(j.Delay), Hang: j.Hang,
		Code: codes.Code(j.Code), Message: j.Message, After: j.After, Entries: j.Entries, RetryDelay: time.Duration(j.RetryDelay),
		Omit: j.Omit, Cut: j.Cut, CutAfter: j.CutAfter,
		RateLimitFactor: j.RateLimitFactor, RateLimitPeriod: time.Duration(j.RateLimitPeriod),
	}
}

func newJSONFault(f ActiveFault) jsonFault {
	return jsonFault{
		ID: f.ID, Hits: f.Hits, Method: f.Method, Table: f.Table, Skip: f.Skip, Count: f.Count,
		Delay: jsonDuration(f.Delay), Hang: f.Hang,
		Code: jsonCode(f.Code), Message: f.Message, After: f.After, Entries: f.Entries, RetryDelay: jsonDuration(f.RetryDelay),
		Omit: f.Omit, Cut: f.Cut, CutAfter: f.CutAfter,
		RateLimitFactor: f.RateLimitFactor, RateLimitPeriod: jsonDuration(f.RateLimitPeriod),
	}
}

// jsonDuration is a duration such as "1.5s".
type jsonDuration time.Duration

func (d jsonDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *jsonDuration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = jsonDuration(v)
	return err
}

// jsonCode is a status code by its name in gRPC's documents: "UNAVAILABLE".
type jsonCode codes.Code

// codeNames are the names by number.
var codeNames = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

func (c jsonCode) MarshalText() ([]byte, error) {
	if int(c) >= len(codeNames) {
		return nil, fmt.Errorf("no name for status code %d", c)
	}
	return []byte(codeNames[c]), nil
}

func (c *jsonCode) UnmarshalText(b []byte) error {
	i := slices.Index(codeNames, string(b))
	if i < 0 {
		return fmt.Errorf("unknown status code %q", b)
	}
	*c = jsonCode(i)
	return nil
}

func (e *Emulator) controlFaults(w http.ResponseWriter, _ *http.Request) {
	out := []jsonFault{}
	for _, f := range e.Faults() {
		out = append(out, newJSONFault(f))
	}
	writeJSON(w, out)
}

func (e *Emulator) controlInject(w http.ResponseWriter, r *http.Request) {
	var f jsonFault
	if readJSON(w, r, &f) {
		writeJSON(w, map[string]int{"id": e.Inject(f.fault())})
	}
}

func (e *Emulator) controlClear(w http.ResponseWriter, _ *http.Request) {
	e.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
}

func (e *Emulator) controlRemove(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || !e.RemoveFault(id) {
		http.Error(w, "no such fault", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *Emulator) controlNow(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]time.Time{"now": e.Now()})
}

func (e *Emulator) controlClock(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Now     *time.Time    `json:"now"`     // stop the clock here
		Advance *jsonDuration `json:"advance"` // move it on
		Reset   bool          `json:"reset"`   // let it run as it did at first
	}
	if !readJSON(w, r, &c) {
		return
	}
	if c.Reset {
		e.ResetClock()
	}
	if c.Now != nil {
		e.SetClock(*c.Now)
	}
	if c.Advance != nil {
		e.AdvanceClock(time.Duration(*c.Advance))
	}
	e.controlNow(w, r)
}

func (e *Emulator) controlGC(w http.ResponseWriter, r *http.Request) {
	n, err := e.CollectGarbage(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, map[string]int{"rows": n})
}

func (e *Emulator) controlTablets(w http.ResponseWriter, r *http.Request) {
	tablets, err := e.Tablets(r.URL.Query().Get("table"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	writeJSON(w, tablets)
}

var errUnknownChange = errors.New("the change must be split, merge, shift or move")

func (e *Emulator) controlChangeTablets(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Table string `json:"table"`
		Key   []byte `json:"key"` // base64, as all bytes in JSON
		To    []byte `json:"to"`  // of a shift: the new boundary
	}
	if !readJSON(w, r, &c) {
		return
	}
	err := errUnknownChange
	switch r.PathValue("change") {
	case "split":
		err = e.SplitTablet(c.Table, c.Key)
	case "merge":
		err = e.MergeTablets(c.Table, c.Key)
	case "shift":
		err = e.ShiftTablets(c.Table, c.Key, c.To)
	case "move":
		err = e.MoveTablet(c.Table, c.Key)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
