package btrpc

import (
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/status"
)

// refusedField is how the service begins to say which field of a request it refuses.
var refusedField = regexp.MustCompile(`^Error in (?:field '([a-z][a-z_]{0,63})'|element #([0-9]{1,6})) : `)

// knownFaults are texts in which the service refuses filters and which hold nothing of the
// request (measured: emulator/internal/filter has the texts).
var knownFaults = []string{
	"argument must be > 0", "argument must be >= 0", "argument must not be empty", "must not contain ':'",
	"a condition must have a predicate", "Chain must contain at least two RowFilters", "Interleave must contain at least two RowFilters",
	"row_sample_filter argument must be between 0.0 and 1.0", "sink cannot be used within a condition",
	"sink must be true if set", "pass_all_filter must be true if set", "block_all_filter must be true if set", "strip_value_transformer must be true if set",
	"a Chain may have no more than one sub-filter which contains an apply_label_transformer",
}

// Refusal returns which part of a request the service refuses and why, as far as that quotes
// nothing: the names and numbers of fields and, where it is one of the known texts, the
// fault. It is empty where the error says nothing of the kind.
func Refusal(err error) string {
	var refused interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &refused) {
		return ""
	}
	text, out := refused.GRPCStatus().Message(), []string{}
	for {
		m := refusedField.FindStringSubmatch(text)
		if m == nil {
			break
		}
		text = text[len(m[0]):]
		if m[1] != "" {
			out = append(out, "field "+m[1])
		} else {
			out = append(out, "element "+m[2])
		}
	}
	for _, fault := range knownFaults {
		if strings.TrimSuffix(strings.TrimSpace(text), ".") == fault {
			out = append(out, fault)
		}
	}
	return strings.Join(out, ": ")
}
