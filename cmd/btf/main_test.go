package main

import (
	"strings"
	"testing"
)

func TestTheVersionIsPrinted(t *testing.T) {
	for _, arg := range []string{"--version", "version"} {
		if stdout, _, err := run(t, arg); err != nil || !strings.HasPrefix(stdout, "btf version ") || !strings.Contains(stdout, "(go") {
			t.Errorf("btf %s: %q, %v", arg, stdout, err)
		}
	}
}
