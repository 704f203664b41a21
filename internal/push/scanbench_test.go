package push

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// BenchmarkScan walks over the body of a push request as the scanner does, as jsontext does
// and as encoding/json does when it checks the syntax.
func BenchmarkScan(b *testing.B) {
	body := []byte(`{"message":{"attributes":{"tenant":"acme"},"data":"` + base64.StdEncoding.EncodeToString(make([]byte, 1024)) +
		`","messageId":"1","publishTime":"2026-08-30T10:15:31Z"},"subscription":"projects/p/subscriptions/s"}`)
	for name, walk := range map[string]func() error{
		"scanner": func() error {
			s := scanner{b: body}
			return s.skip(0)
		},
		"jsontext": func() error {
			d := jsontext.NewDecoder(bytes.NewBuffer(body))
			for {
				if _, err := d.ReadToken(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		},
		"encoding json": func() error {
			var v json.RawMessage
			return json.Unmarshal(body, &v)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := walk(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
