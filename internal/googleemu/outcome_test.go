package googleemu

import (
	"runtime"
	"testing"
)

// outcome is a test that records how it would have ended.
type outcome struct {
	testing.TB
	how string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(string, ...any) { o.end("skipped") }

func (o *outcome) Fatalf(string, ...any) { o.end("failed") }

func (o *outcome) end(how string) {
	o.how = how
	runtime.Goexit()
}
