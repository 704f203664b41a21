package push

import (
	"fmt"
	"runtime"
)

// panicText says what panicked. The text of a value that is not the runtime's
// own may hold user data, so that only its type is named.
func panicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", v)
}

// panicStack lists the functions below the recovering one, innermost first. It
// leaves out arguments, which a full trace prints in hexadecimal and which may
// be user data.
func panicStack() []string {
	const deepest = 32
	pcs := make([]uintptr, deepest)
	// Skipped: Callers, panicStack, the deferred function, and gopanic.
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var stack []string
	for {
		f, more := frames.Next()
		if f.Function != "" {
			stack = append(stack, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		if !more {
			return stack
		}
	}
}
