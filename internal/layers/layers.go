// Package layers guarantees that imports between this module's packages go down. One table has
// a row for each package, with the packages of ours that it imports. The test fails on an import
// that is not in the table, on one that is in the table and not made, on a package without a row,
// on a row without a package, and on test support in the deployed binary. The table is the only
// place that says it: docs/design.md refers to it.
package layers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the import path that all of our packages start with.
const Module = "github.com/bigtable-functions/bigtable-functions"

// table maps each package to what it imports of ours, outside its tests. Both are relative to Module.
var table = map[string][]string{
	// These know nothing of the rest.
	"internal/cell":         {},
	"internal/changestream": {"internal/rowrange"},
	"internal/push":         {},
	"internal/relay":        {"internal/retry"},
	"internal/retry":        {},
	"internal/rowrange":     {},
	"internal/task":         {},
	"internal/telemetry":    {},
	"internal/version":      {},

	// The pipeline file, and what it makes of records and rows.
	"internal/pipeline": {"internal/cell", "internal/rowrange"},
	"internal/record":   {"internal/cell", "internal/deadletter"},
	"internal/expr":     {"internal/cell", "internal/pipeline"},
	"internal/mapping":  {"internal/cell", "internal/changestream", "internal/expr", "internal/pipeline", "internal/record", "internal/retry"},
	"internal/pipetest": {"internal/cell", "internal/changestream", "internal/expr", "internal/mapping", "internal/pipeline", "internal/push", "internal/record"},
	"internal/lint":     {"internal/expr", "internal/mapping", "internal/pipeline"},
	"internal/prices":   {},
	"internal/filediff": {"internal/lint", "internal/pipeline", "internal/pipetest", "internal/scanjob"},
	"internal/bill":     {"internal/lint", "internal/pipeline", "internal/prices", "internal/scanjob"},

	// Calls of services.
	"internal/btrpc":      {"internal/retry"},
	"internal/changeread": {"internal/btrpc", "internal/changestream", "internal/retry", "internal/rowrange"},
	"internal/writer":     {"internal/btrpc", "internal/pipeline", "internal/retry"},
	"internal/settle":     {"internal/mapping", "internal/pipeline", "internal/retry", "internal/writer"},
	"internal/deadletter": {},
	"internal/scanjob":    {"internal/pipeline", "internal/task", "ledger"},
	"internal/sink":       {"internal/pipeline", "internal/relay", "internal/retry"},
	"ledger":              {"internal/changestream", "internal/retry", "internal/rowrange"},
	"ledger/firestore":    {"internal/retry", "ledger"},
	"ledger/file":         {"ledger"},
	"ledger/storetest":    {"internal/changestream", "internal/rowrange", "ledger"},

	// Functions never import each other.
	"functions/write": {"internal/btrpc", "internal/deadletter", "internal/expr", "internal/mapping", "internal/pipeline", "internal/push", "internal/record",
		"internal/retry", "internal/settle", "internal/telemetry", "internal/writer"},
	"functions/scan-planner": {"internal/btrpc", "internal/mapping", "internal/pipeline", "internal/push", "internal/retry", "internal/rowrange", "internal/scanjob",
		"internal/task", "internal/telemetry", "ledger"},
	"functions/scan-worker": {"internal/btrpc", "internal/deadletter", "internal/mapping", "internal/pipeline", "internal/push", "internal/relay", "internal/retry",
		"internal/rowrange", "internal/scanjob", "internal/sink", "internal/task", "internal/telemetry", "ledger"},
	"functions/changes": {"internal/btrpc", "internal/changeread", "internal/changestream", "internal/deadletter", "internal/mapping", "internal/pipeline", "internal/push", "internal/relay",
		"internal/retry", "internal/sink", "internal/task", "internal/telemetry", "ledger"},

	// The emulator shares only row ranges with what it tests.
	"emulator":                  {"emulator/internal/filter", "emulator/internal/journal", "emulator/internal/store"},
	"emulator/conformance":      {},
	"emulator/internal/filter":  {"emulator/internal/store"},
	"emulator/internal/journal": {},
	"emulator/internal/store":   {},

	// Laptops and tests.
	"internal/replay": {"internal/deadletter", "internal/expr", "internal/mapping", "internal/pipeline", "internal/push", "internal/record",
		"internal/settle"},
	"internal/localcloud":       {"internal/lint", "internal/push"},
	"internal/googleemu":        {},
	"internal/functest":         {"emulator"},
	"internal/functest/deploy":  {"internal/lint", "internal/localcloud", "internal/pipeline"},
	"internal/functest/ledgers": {"internal/googleemu", "ledger", "ledger/file", "ledger/firestore"},
	"internal/race":             {},
	"internal/features":         {},
	"internal/image":            {},
	"internal/release":          {},
	"internal/layers":           {},
	"examples":                  {},
	"realgcp":                   {},

	// Programs. notDeployed says what the deployed one may not contain.
	"cmd/internal/assemble": {"cmd/internal/closers", "functions/changes", "functions/scan-planner", "functions/scan-worker", "functions/write",
		"internal/btrpc", "internal/changestream", "internal/deadletter", "internal/lint", "internal/mapping", "internal/pipeline",
		"internal/relay", "internal/scanjob", "internal/sink", "internal/task", "internal/telemetry", "ledger", "ledger/file",
		"ledger/firestore"},
	"cmd/functions": {"cmd/internal/assemble", "cmd/internal/closers", "internal/lint", "internal/pipeline", "internal/push",
		"internal/telemetry", "internal/version", "ledger"},
	"cmd/btf/internal/linefile": {"internal/relay", "internal/sink"},
	"cmd/btf/internal/terminal": {},
	"cmd/btf/internal/localdeploy": {"cmd/internal/assemble", "cmd/internal/closers", "emulator", "internal/btrpc", "internal/lint", "internal/localcloud",
		"internal/pipeline", "internal/push", "internal/task", "internal/writer", "ledger"},
	"cmd/btf/internal/resourcereport": {"cmd/btf/internal/terminal", "internal/lint"},
	"cmd/btf/internal/diffreport":     {"cmd/btf/internal/terminal", "internal/filediff"},
	"cmd/btf/internal/plan":           {"cmd/btf/internal/resourcereport", "cmd/btf/internal/terminal", "internal/bill", "internal/lint", "internal/prices"},
	"cmd/btf/internal/streamstatus":   {"internal/changestream", "internal/rowrange", "ledger"},
	"cmd/btf/internal/tail":           {"internal/btrpc", "internal/changeread", "internal/changestream", "internal/pipeline", "internal/retry", "internal/rowrange"},
	"cmd/btf/internal/process":        {"ledger"},
	"cmd/btf/internal/setup":          {"cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/lint", "internal/pipeline", "ledger", "ledger/file"},
	"cmd/btf/internal/scanrun": {"cmd/btf/internal/linefile", "cmd/btf/internal/process", "cmd/btf/internal/scanshare", "cmd/btf/internal/setup",
		"cmd/btf/internal/terminal", "cmd/internal/assemble", "cmd/internal/closers", "functions/scan-planner",
		"functions/scan-worker", "internal/btrpc", "internal/pipeline", "internal/retry", "internal/scanjob", "internal/sink",
		"internal/task", "internal/telemetry", "ledger"},
	"cmd/btf/internal/devledger": {"cmd/internal/assemble", "ledger"},
	"cmd/btf/internal/filewatch": {},
	"cmd/btf/internal/status": {"cmd/btf/internal/devledger", "cmd/btf/internal/process", "cmd/btf/internal/scanrun", "cmd/btf/internal/scanshare",
		"cmd/btf/internal/setup", "cmd/btf/internal/streamstatus", "cmd/btf/internal/terminal", "cmd/internal/assemble",
		"internal/pipeline", "ledger"},
	"cmd/internal/closers": {},
	"cmd/btf/internal/dev": {"cmd/btf/internal/devledger", "cmd/btf/internal/filewatch", "cmd/btf/internal/localdeploy", "cmd/btf/internal/process",
		"cmd/btf/internal/terminal", "cmd/internal/assemble", "cmd/internal/closers", "functions/changes", "functions/scan-planner",
		"functions/scan-worker", "functions/write", "internal/lint", "internal/pipeline", "internal/retry", "internal/scanjob",
		"internal/task", "internal/telemetry", "ledger"},
	"cmd/btf/internal/demo": {"cmd/btf/internal/localdeploy", "cmd/btf/internal/process", "cmd/btf/internal/scanrun", "cmd/btf/internal/terminal",
		"cmd/internal/assemble", "cmd/internal/closers", "examples", "functions/changes", "functions/scan-worker",
		"functions/write", "internal/expr", "internal/lint", "internal/localcloud", "internal/mapping", "internal/pipeline",
		"internal/push", "internal/record", "internal/relay", "internal/retry", "internal/sink", "internal/task",
		"internal/telemetry", "ledger", "ledger/file"},
	"cmd/btf/internal/replayrun": {"cmd/btf/internal/setup", "cmd/btf/internal/terminal", "cmd/internal/assemble", "cmd/internal/closers", "functions/write",
		"internal/mapping", "internal/pipeline", "internal/push", "internal/replay", "internal/telemetry", "internal/writer"},
	"cmd/btf/internal/emulatorserver": {"emulator"},
	"cmd/btf/internal/explain":        {"cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/lint", "internal/pipeline", "internal/pipetest", "internal/push"},
	"cmd/btf/internal/firstfile":      {"cmd/btf/internal/terminal", "internal/lint", "internal/pipeline"},
	"cmd/btf/internal/lintreport":     {"cmd/btf/internal/resourcereport", "cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/lint", "internal/pipeline"},
	"cmd/btf/internal/testrun":        {"cmd/btf/internal/filewatch", "cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/lint", "internal/pipetest"},
	"cmd/btf/internal/restored":       {"cmd/btf/internal/process", "cmd/btf/internal/setup", "cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/pipeline", "ledger"},
	"cmd/btf/internal/tailrun": {"cmd/btf/internal/setup", "cmd/btf/internal/tail", "cmd/btf/internal/terminal", "cmd/internal/assemble", "internal/btrpc",
		"internal/changestream", "internal/mapping", "internal/retry"},
	"cmd/btf/internal/scanshare": {"ledger"},
	"cmd/btf": {"cmd/btf/internal/demo", "cmd/btf/internal/dev", "cmd/btf/internal/emulatorserver", "cmd/btf/internal/explain",
		"cmd/btf/internal/diffreport", "cmd/btf/internal/firstfile", "cmd/btf/internal/lintreport", "cmd/btf/internal/plan",
		"cmd/btf/internal/replayrun", "cmd/btf/internal/restored", "cmd/btf/internal/scanrun", "cmd/btf/internal/setup",
		"cmd/btf/internal/status", "cmd/btf/internal/tailrun", "cmd/btf/internal/terminal", "cmd/btf/internal/testrun",
		"cmd/internal/assemble", "emulator", "internal/bill", "internal/filediff", "internal/version"},
}

// testSupport is what the tests of every package may import besides what lies below their package.
var testSupport = []string{"emulator", "examples", "internal/functest/...", "internal/googleemu", "internal/localcloud/...", "internal/prices", "internal/race", "internal/replay", "internal/telemetry",
	"ledger/storetest"}

// testOnly is what no package but those of its own tree and test support may import outside a _test.go file.
var testOnly = []string{"internal/functest/...", "internal/googleemu", "internal/features", "internal/image", "internal/layers", "internal/race", "internal/release", "ledger/storetest"}

// ofTheWhole is the packages without code whose tests try the programs together. They may import
// everything.
var ofTheWhole = []string{"internal/image", "realgcp"}

// notDeployed is what the binary of cmd/functions must not contain, by full import path: ours that serve laptops and tests, and their like of others.
var notDeployed = []string{
	Module + "/emulator/...",
	Module + "/examples/...",
	Module + "/internal/features",
	Module + "/internal/functest/...",
	Module + "/internal/googleemu",
	Module + "/internal/image",
	Module + "/internal/layers",
	Module + "/internal/localcloud/...",
	Module + "/internal/race",
	Module + "/internal/release",
	Module + "/internal/replay",
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
			if !slices.Contains(allowed, to) || (matches(testOnly, to) && !matches(testSupport, pkg)) {
				out = append(out, fmt.Sprintf("%s may not import %s (see the table in internal/layers/layers.go)", pkg, to))
			}
		}
		below := append(reach(table, pkg), testSupport...)
		for _, to := range imp.tests {
			if to != pkg && !matches(below, to) && !slices.Contains(ofTheWhole, pkg) {
				out = append(out, fmt.Sprintf("tests of %s may not import %s: it is neither below %[1]s nor test support", pkg, to))
			}
		}
	}
	slices.Sort(out)
	return out
}

// unused returns one sentence for each import that the table allows and no file makes, and for
// each row without a package, sorted.
func unused(table map[string][]string, found map[string]imports) []string {
	var out []string
	for pkg, allowed := range table {
		imp, exists := found[pkg]
		if !exists {
			out = append(out, fmt.Sprintf("%s does not exist: remove its row in internal/layers/layers.go", pkg))
			continue
		}
		for _, to := range allowed {
			if !slices.Contains(imp.code, to) {
				out = append(out, fmt.Sprintf("%s does not import %s: remove it from the row in internal/layers/layers.go", pkg, to))
			}
		}
	}
	slices.Sort(out)
	return out
}

// reach returns all packages below pkg in the table: those that it imports, those that these import, and so on.
func reach(table map[string][]string, pkg string) []string {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(p string) {
		for _, to := range table[p] {
			if !seen[to] {
				seen[to] = true
				visit(to)
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
