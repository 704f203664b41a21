package main

import (
	"maps"
	"strings"
	"testing"
)

// buildFrom builds the functions as a process does that is started with these variables.
func buildFrom(variables map[string]string, target string, changes ...func(*environment)) (*parts, error) {
	variables = maps.Clone(variables)
	variables["FUNCTION_TARGET"] = target
	settings, err := readSettings(func(name string) string { return variables[name] })
	if err != nil {
		return nil, err
	}
	env := environment{settings: settings, logger: discard()}
	for _, change := range changes {
		change(&env)
	}
	return build(env)
}

func TestEachWrongVariableIsNamed(t *testing.T) {
	wrong := map[string]string{
		"PIPELINE": "a", "PIPELINE_FILE": "b", "PORT": "65536", "PUSH_AUDIENCE": "https://example.com", "LEDGER": "orders.db",
		"BIGTABLE_EMULATOR_HOST": "localhost", "PUBSUB_EMULATOR_HOST": "localhost:", "FIRESTORE_EMULATOR_HOST": "8086",
		"OTEL_METRICS_EXPORTER": "prometheus",
	}
	_, err := readSettings(func(name string) string { return wrong[name] })
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for name := range wrong {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named:\n%v", name, err)
		}
	}
	for _, port := range []string{"0", "-1", "http", "1.5"} {
		if _, err := readSettings(func(name string) string {
			return map[string]string{"PIPELINE": "a", "PORT": port}[name]
		}); err == nil || !strings.Contains(err.Error(), "PORT="+port) {
			t.Errorf("port %s: %v", port, err)
		}
	}
}

func TestSettingsHaveDefaults(t *testing.T) {
	s, err := readSettings(func(name string) string { return map[string]string{"PIPELINE": "a", "GOMEMLIMIT": "1GiB"}[name] })
	if err != nil || s.port != 8080 || !s.collectLess || s.metrics.Export || s.target != "" {
		t.Errorf("%+v, %v", s, err)
	}
}
