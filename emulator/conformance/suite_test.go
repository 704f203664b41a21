package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
)

// notPassed are the tests of Google's Go client that the emulator does not
// pass, with the reason.
var notPassed = map[string]string{
	"TestIntegration_Execute":               "SQL is not served",
	"TestIntegration_DataMaterializedView":  "materialized views are not served",
	"TestIntegration_AdminMaterializedView": "materialized views are not served",
	"TestIntegration_AdminLogicalView":      "logical views are not served",
	"TestIntegration_AdminEncryptionInfo":   "it needs a key of Cloud KMS, and asks the service itself",
}

// notOfTheService are tests of the client, which ask no server, one of their
// own or only the service itself.
var notOfTheService = regexp.MustCompile(`DirectPath|NewClientWithEmulatorHost|NoopMetrics|ExportBuilt|Session`)

// buildSuite compiles the integration tests of the Go client that this module
// uses, so that they take the emulator for the service. It returns the binary.
func buildSuite(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SUITE_DIR") // where ./run keeps it for another test
	if dir == "" {
		dir = t.TempDir()
	}
	src := filepath.Join(dir, "bigtable")
	if err := os.CopyFS(src, os.DirFS(output(t, "go", "list", "-f", "{{.Dir}}", "cloud.google.com/go/bigtable"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(src, "export_test.go")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	replace := func(old, new string) {
		t.Helper()
		if strings.Count(text, old) != 1 {
			t.Fatalf("the client's tests have changed: %q is in export_test.go %d times", old, strings.Count(text, old))
		}
		text = strings.Replace(text, old, new, 1)
	}
	// Where they would start Google's in-process emulator, they take this one. The
	// client for instances, which has no emulated form there, dials it too.
	replace("\tconfig.AdminEndpoint = srv.Addr\n", "\tsrv.Addr = os.Getenv(\"SUITE_ADDRESS\")\n\tconfig.UseProd, config.Cluster = true, \"cluster\"\n\tconfig.AdminEndpoint = srv.Addr\n")
	replace("\t\tconfig.Instance = \"instance\"\n", "\t\tconfig.Instance = os.Getenv(\"SUITE_INSTANCE\")\n")
	replace("(e *EmulatedEnv) NewInstanceAdminClient() (*InstanceAdminClient, error) {\n\treturn nil, nil\n",
		"(e *EmulatedEnv) NewInstanceAdminClient() (*InstanceAdminClient, error) {\n\tctx, opts, err := e.AdminClientOptions()\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\treturn NewInstanceAdminClient(ctx, e.config.Project, opts...)\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// This module's versions of everything else are used, from a go.mod beside it.
	mod := output(t, "go", "env", "GOMOD")
	modfile := filepath.Join(dir, "go.mod")
	for _, ext := range []string{".mod", ".sum"} {
		b, err := os.ReadFile(strings.TrimSuffix(mod, ".mod") + ext)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(strings.TrimSuffix(modfile, ".mod")+ext, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output(t, "go", "mod", "edit", "-replace", "cloud.google.com/go/bigtable="+src, modfile)
	bin := filepath.Join(dir, "suite.test")
	output(t, "go", "test", "-c", "-modfile", modfile, "-o", bin, "cloud.google.com/go/bigtable")
	return bin
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// runSuite runs tests of the suite in an instance and returns the results by
// test: PASS, FAIL or SKIP. What they print goes to the log if one fails.
func runSuite(t *testing.T, bin, instance, pattern string, env ...string) map[string]string {
	// One after the other: the parts of TestIntegration_InstanceAdminClient_CreateAppProfile
	// draw their ids into one buffer, and sometimes draw the same.
	cmd := exec.CommandContext(t.Context(), bin, "-test.v", "-test.parallel=1", "-test.timeout=10m", "-test.run", pattern)
	cmd.Dir = filepath.Join(filepath.Dir(bin), "bigtable") // for testdata
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BIGTABLE_EMULATOR_HOST=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, "SUITE_ADDRESS="+os.Getenv("BIGTABLE_EMULATOR_HOST"), "SUITE_INSTANCE="+instance), env...)
	out, _ := cmd.CombinedOutput() // the results say it all
	results := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (TestIntegration_\w+)`).FindAllSubmatch(out, -1) {
		results[string(m[2])] = string(m[1])
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("in %s:\n%s", instance, out)
		}
	})
	return results
}

// TestGooglesOwnTestsPass runs the integration tests of Google's Go client
// three times at once against one emulator, while another client writes.
func TestGooglesOwnTestsPass(t *testing.T) {
	admin, client := clients(t)
	bin := buildSuite(t)
	var names []string
	for _, name := range strings.Fields(output(t, bin, "-test.list", "^TestIntegration_")) {
		if strings.HasPrefix(name, "TestIntegration_") && !notOfTheService.MatchString(name) && notPassed[name] == "" && name != "TestIntegration_AdminBackup" {
			names = append(names, name)
		}
	}
	if len(names) < 25 {
		t.Fatalf("the suite has only %q", names)
	}
	stop := writeMeanwhile(t, admin, client)
	defer stop()
	var runs sync.WaitGroup
	for i := range 3 {
		runs.Go(func() {
			instance := fmt.Sprintf("suite%d", i)
			results := runSuite(t, bin, instance, "^("+strings.Join(names, "|")+")$")
			// This one restores into a second instance with a client that finds the
			// emulator by the variable, as any program does. The variable lowers what
			// the client takes in one message, which other tests exceed.
			maps.Copy(results, runSuite(t, bin, instance, "^TestIntegration_AdminBackup$", "BIGTABLE_EMULATOR_HOST="+os.Getenv("BIGTABLE_EMULATOR_HOST")))
			for _, name := range append(slices.Clone(names), "TestIntegration_AdminBackup") {
				if results[name] != "PASS" {
					t.Errorf("%s: %s %s", instance, name, results[name])
				}
			}
		})
	}
	runs.Wait()
	t.Logf("%d tests passed, three times at once; not passed: %v", len(names)+1, notPassed)
}

// writeMeanwhile writes rows one after the other until the function that it
// returns is called, which checks that none failed.
func writeMeanwhile(t *testing.T, admin *bigtable.AdminClient, client *bigtable.Client) (stop func()) {
	id := fmt.Sprintf("meanwhile%d", time.Now().UnixNano())
	if err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{TableID: id, Families: map[string]bigtable.GCPolicy{"cf": bigtable.NoGcPolicy()}}); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { ended <- n }()
		for {
			select {
			case <-done:
				return
			default:
			}
			m := bigtable.NewMutation()
			m.Set("cf", "q", 0, []byte("v"))
			if err := client.Open(id).Apply(t.Context(), fmt.Sprintf("%09d", n), m); err != nil {
				t.Errorf("the writer's row %d: %v", n, err)
				return
			}
			n++
		}
	}()
	return func() {
		close(done)
		wrote, read := <-ended, 0
		if err := client.Open(id).ReadRows(t.Context(), bigtable.InfiniteRange(""), func(bigtable.Row) bool { read++; return true }); err != nil || read != wrote || wrote == 0 {
			t.Errorf("the other client wrote %d rows and reads %d: %v", wrote, read, err)
		}
	}
}
