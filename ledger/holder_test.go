package ledger_test

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Two processes have two identities, and of each that tells its system the process can be had back.
func TestAHolderNamesItsProcess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9.-]{1,12}`)
		p := ledger.Process{
			Host: name.Draw(t, "host"), PID: rapid.IntRange(1, 1<<22).Draw(t, "pid"),
			System: rapid.StringMatching(`[0-9a-f]{0,12}`).Draw(t, "system"),
		}
		if p.System != "" {
			p.Started = rapid.StringMatching(`[0-9]{1,9}`).Draw(t, "started")
		} else {
			p.Revision = rapid.StringMatching(`([a-z][a-z0-9-]{0,12})?`).Draw(t, "revision")
		}
		got, ok := p.Holder().Process()
		if ok != (p.System != "") || ok && got != p {
			t.Fatalf("%+v is %q, which names %+v, %t", p, string(p.Holder()), got, ok)
		}
		if other := p; p.Holder() != "" {
			other.PID++
			if other.Holder() == p.Holder() {
				t.Fatalf("two processes are %q", string(p.Holder()))
			}
		}
	})
}

func TestPeopleReadHostAndPID(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{host + "/12", host + "/12/abc-34"} {
		if got := ledger.Holder(name).String(); got != host+"/12" {
			t.Errorf("%q reads %q", name, got)
		}
	}
	if got := ledger.Holder("revision-1/localhost/1").String(); got != "revision-1/localhost/1" {
		t.Errorf("a function's name reads %q", got)
	}
}
