package process

import (
	"os/exec"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func TestAProcessThatHasDiedIsToldFromOneThatLives(t *testing.T) {
	if !IsCertain() {
		t.Skip("this system does not tell for certain")
	}
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	name := Of(sleeper.Process.Pid)
	if Died(name) || Died(Self()) {
		t.Errorf("%s or %s counts as dead, and lives", name, Self())
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !Died(name) { // a zombie from here on: the signal takes a moment
	}
	_ = sleeper.Wait() // "signal: killed"
	if !Died(name) {
		t.Errorf("%s lives, and is dead", name)
	}
}

func TestWhatIsNotCertainCountsAsAlive(t *testing.T) {
	if !IsCertain() {
		t.Skip("this system does not tell for certain")
	}
	self := Self()
	named, ok := self.Process()
	if !ok {
		t.Fatalf("%q names no process of this system", self)
	}
	host, started, identity, own := named.Host, named.Started, named.System+"-"+named.Started, string(self)
	const nobody = "/4194305/" // above what Linux gives, PID_MAX_LIMIT
	for name, want := range map[string]bool{
		own + "0":                         true, // this PID was another's before
		host + nobody + identity:          true,
		host + nobody + "0123-" + started: false, // of another boot, machine or container
		host + nobody[:len(nobody)-1]:     false, // of a version that said no more, or of a function
		"revision-1/" + host + "/1":       false,
		host + "/0/" + identity:           false,
		host + "/-1/" + identity:          false,
		host + "//" + identity:            false,
		"":                                false,
		"/":                               false,
		own + "/" + identity:              false,
		host + nobody:                     false,
		host + nobody + "-":               false,
		host + nobody + "-" + started:     false,
	} {
		if got := Died(ledger.Holder(name)); got != want {
			t.Errorf("%q has died: %t, want %t", name, got, want)
		}
	}
}
