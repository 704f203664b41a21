package writer

// state is a step of an entry's way from Apply to its outcome. The writer's lock guards it.
type state uint8

const (
	outside state = iota // not accepted: limits.inFlight has no room, or its phase has not begun
	behind               // another entry of its row goes first
	queued               // accepted: in the queue of its table
	delayed              // accepted: sent no sooner than a time, after a failure or an entry that may be applied late
	called               // in a call
	suspect              // refused together with others: isolate sends it again
	lacking              // met NOT_FOUND: missing decides
	parked               // waits for the repair of its table
	ended                // has its outcome
	states
)

// String returns the name that tests and the table below use.
func (s state) String() string {
	return [...]string{"outside", "behind", "queued", "delayed", "called", "suspect", "lacking", "parked", "ended"}[s]
}

// transitions is every way that an entry may go, with the function that moves it. Each begins in
// outside or behind and none leaves ended. The tests of this package fail if an entry goes another
// way, and if one of these is never gone.
var transitions = [...]struct {
	from, to state
	why      string
}{
	// admission
	{outside, queued, "accept: there is room"},
	{outside, delayed, "accept: an entry that may be applied late would undo it"},
	{outside, ended, "begin, withdraw, countDown: it cannot be sent, finds no room in time, or something before it failed"},
	{behind, outside, "succeed: the entry before it was settled before it was accepted"},
	{behind, queued, "succeed: it takes the place of the entry before it"},
	{behind, delayed, "succeed: the same, but an entry that may be applied late would undo it"},
	{behind, ended, "end: the entry before it is not applied"},

	// batching
	{queued, called, "take: a batch, or a call of its own"},
	{queued, ended, "add, abandon: its time is over, the breaker is open, or the writer ends"},
	{delayed, called, "take: it is due"},
	{delayed, ended, "add, settle, abandon: the same, or a call that was given up has applied it"},

	// call and verdict
	{called, ended, "settle: it is applied, rejected alone, or has failed for good"},
	{called, delayed, "sendAgain, giveUpHung: it failed for now, or its call is given up as hung"},
	{called, suspect, "sort: it was refused, perhaps for the fault of another"},
	{called, lacking, "sort: its table or a family is missing"},

	// isolation
	{suspect, called, "resend: with fewer others, or alone"},
	{suspect, ended, "confirm, add: it was refused alone, its time is over, or the breaker is open"},

	// repair
	{lacking, parked, "park: the table is to be created"},
	{lacking, delayed, "refuseAbsent: the absent family is another entry's"},
	{lacking, suspect, "missing: the families cannot be read"},
	{lacking, ended, "missing, refuseAbsent: it names what does not exist"},
	{parked, called, "sendParked: the table is repaired"},
	{parked, ended, "applyParked, giveUp, endExpired: the repair has failed, or cannot help it"},
}

// move changes the state of an item. One that has ended stays so: a call that was given up may
// apply an entry while its next step is being decided.
func (w *Writer) move(it *item, to state) {
	if it.state == ended || it.state == to {
		return
	}
	if w.cfg.moved != nil {
		w.cfg.moved(it.state, to)
	}
	it.state = to
}
