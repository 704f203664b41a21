// Package layers guarantees that imports between this module's packages go down: every package has a row in one table that names all of ours it
// may import, and its test fails on any other import, on a package without a row, and on test support in the deployed binary. The table is the
// house of docs/design.md; a change to one is a change to the other.
package layers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the import path that all of our packages start with.
const Module = "github.com/bigtable-functions/bigtable-functions"

// house is the table: package → what it may import of ours, both relative to Module. "x/..." stands for x and all packages below it.
var house = map[string][]string{
	// What knows nothing of the rest.
	"internal/cell":      {},
	"internal/retry":     {},
	"internal/rowrange":  {},
	"internal/task":      {},
	"internal/telemetry": {},

	// What a user may say, and what it means.
	"pipeline":              {"internal/cell", "internal/rowrange"},
	"internal/push":         {},
	"internal/record":       {"internal/cell", "internal/push", "internal/deadletter"},
	"internal/expr":         {"pipeline", "internal/cell"},
	"internal/changestream": {"internal/rowrange"},
	"internal/mapping":      {"internal/expr", "pipeline", "internal/cell", "internal/record", "internal/changestream"},
	"internal/pipetest":     {"internal/mapping", "pipeline", "internal/expr", "internal/record", "internal/cell", "internal/push"},
	"internal/lint":         {"internal/mapping", "pipeline", "internal/expr"},

	// What talks to services.
	"internal/btrpc":         {"internal/retry"},
	"internal/writer":        {"internal/btrpc", "internal/retry", "pipeline"},
	"internal/deadletter":    {"internal/retry"},
	"internal/relay":         {},
	"internal/scanjob":       {"internal/task", "ledger", "pipeline"},
	"internal/sink":          {"internal/relay", "internal/cell", "internal/retry"},
	"internal/sink/bigtable": {"internal/sink", "internal/relay", "internal/cell", "internal/retry", "internal/writer"},
	"internal/sink/gcs":      {"internal/sink", "internal/relay", "internal/cell", "internal/retry"},
	"internal/sink/parquet":  {"internal/sink", "internal/relay", "internal/cell", "internal/retry"},
	"internal/sink/avro":     {"internal/sink", "internal/relay", "internal/cell", "internal/retry"},
	"ledger":                 {"internal/rowrange", "internal/retry", "internal/changestream"},
	"ledger/firestore":       {"ledger", "internal/retry"},
	"ledger/file":            {"ledger"},
	"ledger/storetest":       {"ledger", "internal/rowrange", "internal/changestream"},

	// Functions never import each other.
	"functions/write": {"internal/push", "internal/record", "internal/mapping", "internal/writer", "internal/btrpc", "internal/deadletter",
		"internal/retry", "pipeline", "internal/expr", "internal/cell", "internal/lint", "internal/telemetry", "ledger"},
	"functions/scan-planner": {"internal/push", "internal/task", "internal/scanjob", "internal/mapping", "internal/btrpc", "internal/retry", "internal/rowrange",
		"pipeline", "internal/lint", "internal/telemetry", "ledger"},
	"functions/scan-worker": {"internal/push", "internal/task", "internal/scanjob", "internal/relay", "internal/sink/...", "internal/mapping", "internal/btrpc",
		"internal/deadletter", "internal/retry", "internal/rowrange", "internal/cell", "internal/expr", "pipeline", "internal/lint",
		"internal/telemetry", "ledger"},
	"functions/changes": {"internal/push", "internal/task", "internal/relay", "internal/sink/...", "internal/mapping", "internal/btrpc",
		"internal/deadletter", "internal/retry", "internal/rowrange", "internal/cell", "internal/expr", "internal/changestream", "pipeline",
		"internal/lint", "internal/telemetry", "ledger"},

	// The emulator shares only row ranges with what it tests.
	"emulator":                  {"internal/rowrange", "emulator/internal/..."},
	"emulator/conformance":      {},
	"emulator/internal/filter":  {"internal/rowrange", "emulator/internal/store"},
	"emulator/internal/journal": {"internal/rowrange", "emulator/internal/store"},
	"emulator/internal/store":   {"internal/rowrange"},

	// Laptops and tests.
	"internal/localcloud":              {"internal/push"},
	"internal/localcloud/googlepubsub": {"internal/localcloud", "internal/googleemu", "internal/push"},
	"internal/googleemu":               {},
	"internal/functest":                {"emulator"},
	"internal/functest/deploy":         {"internal/lint", "internal/localcloud", "pipeline"},
	"internal/features":                {},
	"internal/layers":                  {},
	"examples":                         {},

	// Programs. What the deployed one may contain is said by notDeployed.
	"cmd/internal/assemble": {"functions/write", "functions/scan-planner", "functions/scan-worker", "internal/btrpc", "internal/deadletter", "internal/lint",
		"internal/mapping", "internal/relay", "internal/scanjob", "internal/task", "internal/telemetry", "ledger", "ledger/file", "ledger/firestore", "pipeline"},
	"cmd/functions": {"cmd/internal/...", "functions/...", "internal/...", "ledger/...", "pipeline"},
	"cmd/btf/internal/localdeploy": {"cmd/internal/assemble", "emulator", "functions/write", "functions/scan-planner", "functions/scan-worker", "internal/btrpc",
		"internal/lint", "internal/localcloud", "internal/push", "internal/task", "internal/writer", "ledger", "pipeline"},
	"cmd/btf": {"cmd/btf/internal/...", "cmd/internal/...", "functions/...", "internal/...", "ledger/...", "pipeline", "emulator", "examples"},
}

// testSupport is what the tests of every package may import besides what lies below their package.
var testSupport = []string{"emulator", "examples", "internal/functest/...", "internal/googleemu", "internal/localcloud/...", "internal/telemetry", "ledger/storetest"}

// testOnly is what no package but those of its own tree and test support may import outside a _test.go file.
var testOnly = []string{"internal/functest/...", "internal/googleemu", "internal/features", "internal/layers", "ledger/storetest"}

// notDeployed is what the binary of cmd/functions must not contain, by full import path: ours that serve laptops and tests, and their like of others.
var notDeployed = []string{
	Module + "/emulator/...",
	Module + "/examples/...",
	Module + "/internal/features",
	Module + "/internal/functest/...",
	Module + "/internal/googleemu",
	Module + "/internal/layers",
	Module + "/internal/localcloud/...",
	Module + "/ledger/storetest",
	"cloud.google.com/go/bigtable/bttest",
	"cloud.google.com/go/pubsub/v2/pstest",
	"github.com/spf13/cobra",
	"pgregory.net/rapid",
}

// imports is what one package imports of ours, relative to Module: in the package itself and in its _test.go files, of either package clause.
type imports struct {
	code, tests []string
}

// violations compares the packages found with the table and returns one sentence for each import that it does not allow and each package that it
// does not know, sorted.
func violations(table map[string][]string, found map[string]imports) []string {
	var out []string
	for pkg, imp := range found {
		allowed, known := table[pkg]
		if !known {
			out = append(out, fmt.Sprintf("%s is in no layer: add it to the table in internal/layers/layers.go", pkg))
			continue
		}
		for _, to := range imp.code {
			if !matches(allowed, to) || (matches(testOnly, to) && !matches(testSupport, pkg)) {
				out = append(out, fmt.Sprintf("%s may not import %s (see the table in internal/layers/layers.go)", pkg, to))
			}
		}
		below := append(reach(table, pkg), testSupport...)
		for _, to := range imp.tests {
			if to != pkg && !matches(below, to) {
				out = append(out, fmt.Sprintf("tests of %s may not import %s: it is neither below %[1]s nor test support", pkg, to))
			}
		}
	}
	slices.Sort(out)
	return out
}

// reach is all that lies below pkg in the table: what it may import, what that may import, and so on. Patterns are kept as they are, and expanded.
func reach(table map[string][]string, pkg string) []string {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(p string) {
		for _, pattern := range table[p] {
			if seen[pattern] {
				continue
			}
			seen[pattern] = true
			for q := range table {
				if matches([]string{pattern}, q) {
					visit(q)
				}
			}
		}
	}
	visit(pkg)
	return slices.Collect(maps.Keys(seen))
}

// deployed returns those of deps, import paths, that the deployed binary must not contain.
func deployed(deps []string) []string {
	var out []string
	for _, d := range deps {
		if matches(notDeployed, d) {
			out = append(out, d)
		}
	}
	return out
}

// matches tells whether one of patterns names path.
func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		root, tree := strings.CutSuffix(p, "/...")
		return path == root || tree && strings.HasPrefix(path, root+"/")
	})
}
