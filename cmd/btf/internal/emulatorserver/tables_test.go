package emulatorserver

import (
	"strings"
	"testing"
	"time"
)

func TestTablesAreReadAsTheyAreWritten(t *testing.T) {
	req, err := parseTable("t:a,b;splits=k,l;stream=48h")
	if err != nil || req.TableId != "t" || len(req.Table.ColumnFamilies) != 2 || len(req.InitialSplits) != 2 || req.Table.ChangeStreamConfig.RetentionPeriod.AsDuration() != 48*time.Hour {
		t.Errorf("%v, %v", req, err)
	}
	if req, err := parseTable("t"); err != nil || len(req.Table.ColumnFamilies) != 0 {
		t.Errorf("%v, %v", req, err)
	}
	for spec, want := range map[string]string{
		"":              "needs a name",
		":a":            "needs a name",
		"t:a;stream=1d": "not a duration",
		"t:a;splitz=k":  "unknown option",
	} {
		if _, err := parseTables(Config{Tables: []string{spec}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}
