package btrpc

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestARefusalIsToldWithoutData(t *testing.T) {
	for text, want := range map[string]string{
		"Error in field 'cells_per_row_limit_filter' : argument must be > 0":                            "field cells_per_row_limit_filter: argument must be > 0",
		"Error in field 'value_regex_filter' : error parsing regexp: missing ): `secret(`":              "field value_regex_filter",
		"Error in field 'row_ranges' : Error in element #3 : the range secret-a to b is empty":          "field row_ranges: element 3",
		"Error in field 'filter' : Error in field 'chain' : Chain must contain at least two RowFilters": "field filter: field chain: Chain must contain at least two RowFilters",
		"Chain must contain at least two RowFilters":                                                    "Chain must contain at least two RowFilters",
		"Error in field 'secret-key' : argument must be > 0":                                            "",
		"secret: argument must be > 0":                                                                  "",
		"argument must be > 0 secret":                                                                   "",
		"":                                                                                              "",
	} {
		err := fmt.Errorf("reading: %w", status.Error(codes.InvalidArgument, text))
		if got := Refusal(err); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Refusal(fmt.Errorf("argument must be > 0")); got != "" {
		t.Errorf("no status: %q", got)
	}
}
