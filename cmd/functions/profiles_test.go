package main

import (
	"strings"
	"testing"
)

// A deployment whose dedupe rests on a profile that is not there does not start.
func TestAWrongProfileStopsTheDeployment(t *testing.T) {
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	env := map[string]string{
		"PIPELINE":               strings.Replace(chaosFile, "  orders:\n", "  orders:\n    appProfile: ghost\n", 1),
		"BIGTABLE_EMULATOR_HOST": b.addr, "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
	}
	_, err := buildFrom(env, "write")
	if err == nil || !strings.Contains(err.Error(), "appProfiles/ghost does not exist") {
		t.Error(err)
	}
}
