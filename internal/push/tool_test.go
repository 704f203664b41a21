package push

import "testing"

func TestAToolTellsAPushBodyFromABarePayload(t *testing.T) {
	const good = `{"message":{"data":"e30=","messageId":"m-1","publishTime":"2026-08-30T10:15:30Z"},"subscription":"s"}`
	m, isPush, err := ParseBody([]byte(good))
	if !isPush || err != nil || m.ID != "m-1" || string(m.Data) != "{}" || m.Subscription != "s" {
		t.Errorf("%+v %v %v", m, isPush, err)
	}
	for _, bare := range []string{`{"type":"order"}`, `{"message":"hi"}`, `{"message":{"data":"e30="}}`, "{\"a\":1}\n{\"b\":2}", "x", "", `{"subscription":"s"`} {
		if m, isPush, err := ParseBody([]byte(bare)); isPush || err != nil || string(m.Data) != bare || m.ID != "" {
			t.Errorf("%s: %+v %v %v", bare, m, isPush, err)
		}
	}
	for _, broken := range []string{
		`{"message":{"data":"e30"},"subscription":"s"}`,
		`{"message":{"data":"e30=","messageId":"m-1","publishTime":"2026-08-30T10:15:30Z"},"subscription":"s"} x`,
		`{"message":{"data":"e30="},"subscription":"s"}`,
	} {
		if _, isPush, err := ParseBody([]byte(broken)); !isPush || err == nil {
			t.Errorf("%s: %v %v, want an error", broken, isPush, err)
		}
	}
}
