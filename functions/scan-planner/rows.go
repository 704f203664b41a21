package scanplanner

import (
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// maxKey is Bigtable's limit for a row key, in bytes.
const maxKey = 4096

// rowsOf returns the ranges to read, in key order, apart from one another: what the
// file says, and of that only what the request asks for. None: no row is meant.
func rowsOf(def *pipeline.Scan, asked *task.Rows) ([]rowrange.Range, error) {
	rows := def.Rows
	if rows == nil {
		rows = []rowrange.Range{{}}
	}
	if asked == nil {
		return rows, nil
	}
	wanted, err := parseRows(asked)
	if err != nil {
		return nil, err
	}
	return intersect(rows, wanted), nil
}

// intersect of two lists in key order.
func intersect(a, b []rowrange.Range) []rowrange.Range {
	var out []rowrange.Range
	for _, x := range a {
		for _, y := range b {
			if r, some := rowrange.Intersect(x, y); some {
				out = append(out, r)
			}
		}
	}
	return rowrange.Merge(out)
}

func parseRows(asked *task.Rows) ([]rowrange.Range, error) {
	if len(asked.Prefixes)+len(asked.Ranges) == 0 {
		return nil, errors.New("rows says neither prefixes nor ranges: leave it out for all of the file's")
	}
	var encoded bool
	switch asked.Encoding {
	case "", "text":
	case "base64":
		encoded = true
	default:
		return nil, errors.New("rows.encoding is text or base64")
	}
	var rs []rowrange.Range
	for i, p := range asked.Prefixes {
		key, err := parseKey(p, encoded)
		if err == nil && key == "" {
			err = errors.New("is empty: leave it out for the whole table")
		}
		if err != nil {
			return nil, fmt.Errorf("rows.prefixes[%d] %w", i, err)
		}
		rs = append(rs, rowrange.Prefix(key))
	}
	for i, asked := range asked.Ranges {
		r, err := parseRange(asked, encoded)
		if err != nil {
			return nil, fmt.Errorf("rows.ranges[%d]%w", i, err)
		}
		rs = append(rs, r)
	}
	return rowrange.Merge(rs), nil
}

func parseRange(asked task.Range, encoded bool) (rowrange.Range, error) {
	var r rowrange.Range
	var err error
	if r.Start, err = parseKey(asked.Start, encoded); err != nil {
		return r, fmt.Errorf(".start %w", err)
	}
	if r.End, err = parseKey(asked.End, encoded); err != nil {
		return r, fmt.Errorf(".end %w", err)
	}
	switch {
	case r.Start == "" && r.End == "":
		err = errors.New(" says neither start nor end: leave rows out for the whole table")
	case r.IsEmpty():
		err = errors.New(" holds no key: its end must come after its start, and is not itself in it")
	}
	return r, err
}

func parseKey(s string, encoded bool) (string, error) {
	switch {
	case encoded:
		b, err := base64.StdEncoding.Strict().DecodeString(s)
		if err != nil || base64.StdEncoding.EncodeToString(b) != s {
			return "", errors.New("is no base64: write it canonically, in the standard alphabet with its padding")
		}
		s = string(b)
	case !utf8.ValidString(s):
		return "", errors.New("is no text: use the encoding base64")
	}
	if len(s) > maxKey {
		return "", fmt.Errorf("has %d bytes, and a row key has at most %d", len(s), maxKey)
	}
	return s, nil
}
