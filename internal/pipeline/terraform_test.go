package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTerraformReadsTheSameValues gives files to Terraform's yamldecode, which the
// module uses, and compares every value with ours.
func TestTerraformReadsTheSameValues(t *testing.T) {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must have terraform")
		}
		t.Skip("terraform is not installed, so its reading cannot be compared")
	}
	files := wholeFiles(t)
	files["scalars.yaml"] = []byte("- " + strings.Join(agreed, "\n- ") + "\n")
	dir := t.TempDir()
	for path, data := range files {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			name := strings.ReplaceAll(path, "/", "_")
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
			ours, err := json.Marshal(instance(t, data))
			if err != nil {
				t.Fatal(err)
			}
			difference(t, "", readNumbers(t, ours), readNumbers(t, yamldecode(t, terraform, dir, name)))
		})
	}
}

// agreed are plain scalars that are not refused, so that all readers must agree on
// them.
var agreed = strings.Fields(`yess 0 -1 10 1.5 0.5 -0.0 1.5e+3 1.5E-3 true false null text 08-30 a:b 1:a 1.2.3 v1 Null NULL ~ True TRUE False
	.5x -x nan inf NaN 1s 64MiB 720h event.x order#acme#1 projects/p/topics/t 2026 9223372036854775807 18446744073709551616 0.1 123456789.125 "no" 'on' "0100" "12:30:00" "\x41\u00e9"`)

// yamldecode returns what Terraform reads in a file, as JSON.
func yamldecode(t *testing.T, terraform, dir, name string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), terraform, "console")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("base64encode(jsonencode(yamldecode(file(%q))))\n", name))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("terraform console: %v: %s", err, stderr.Bytes())
	}
	text, err := base64.StdEncoding.DecodeString(strings.Trim(string(out), "\"\n"))
	if err != nil {
		t.Fatalf("terraform console printed %q", out)
	}
	return text
}

func readNumbers(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// difference reports where two JSON values differ; numbers are compared by value.
func difference(t *testing.T, place string, ours, theirs any) {
	t.Helper()
	switch a := ours.(type) {
	case map[string]any:
		b, ok := theirs.(map[string]any)
		if !ok || len(a) != len(b) {
			t.Errorf("%s: we read %v, Terraform %v", place, ours, theirs)
			return
		}
		for k, v := range a {
			difference(t, child(place, k), v, b[k])
		}
	case []any:
		b, ok := theirs.([]any)
		if !ok || len(a) != len(b) {
			t.Errorf("%s: we read %v, Terraform %v", place, ours, theirs)
			return
		}
		for i, v := range a {
			difference(t, fmt.Sprintf("%s[%d]", place, i), v, b[i])
		}
	case json.Number:
		b, ok := theirs.(json.Number)
		x, _ := new(big.Rat).SetString(a.String())
		y, _ := new(big.Rat).SetString(b.String())
		if !ok || x.Cmp(y) != 0 {
			t.Errorf("%s: we read %v, Terraform %v", place, ours, theirs)
		}
	default:
		if ours != theirs {
			t.Errorf("%s: we read %#v, Terraform %#v", place, ours, theirs)
		}
	}
}
