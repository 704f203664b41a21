package emulator

import (
	"fmt"
	"strings"
)

// storedOnly are the methods whose messages are kept and checked, and have no
// effect on data.
var storedOnly = map[string]bool{
	"CreateSchemaBundle": true, "UpdateSchemaBundle": true, "GetSchemaBundle": true, "ListSchemaBundles": true, "DeleteSchemaBundle": true,
}

// RPCTable is the table of docs/emulator.md that says of methods, each a full
// name such as google.bigtable.v2.Bigtable.ReadRows, whether they are served.
func RPCTable(methods []string) string {
	var b strings.Builder
	b.WriteString("| RPC | |\n|---|---|\n")
	for _, full := range methods {
		method := full[strings.LastIndexByte(full, '.')+1:]
		service := strings.TrimSuffix(full, "."+method)
		state := "served"
		if storedOnly[method] {
			state = "stored only"
		}
		if reason := notServed[method]; reason != "" {
			state = "not served: " + reason
		}
		fmt.Fprintf(&b, "| `%s.%s` | %s |\n", service[strings.LastIndexByte(service, '.')+1:], method, state)
	}
	return b.String()
}
