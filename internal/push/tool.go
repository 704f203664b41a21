package push

// ParseBody reads the body of a push request outside of one, as a tool does that has it
// in a file. isPush tells whether it is one: an object with message and subscription.
// Where it is none, err is nil, and m holds the body as bare data.
func ParseBody(body []byte) (m Message, isPush bool, err error) {
	e := envelope{scan: scanner{b: body}, msg: &m}
	if !e.scan.at('{') {
		return Message{Data: body}, false, nil
	}
	err = e.scan.object(e.outer)
	if e.seen&fieldMessage == 0 || e.seen&fieldSubscription == 0 {
		return Message{Data: body}, false, nil
	}
	if err == nil {
		err = e.scan.end()
	}
	if err == nil {
		err = e.check()
	}
	return m, true, err
}
