// Package firstfile writes a first pipeline file, for btf init. It guarantees that lint has nothing
// against the file, that its tests pass, and that it replaces no file.
package firstfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Write writes NAME.yaml into the working directory unless something of that name exists there.
func Write(name string) (file string, err error) {
	text, err := Text(name)
	if err != nil {
		return "", err
	}
	file = name + ".yaml"
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s exists: choose another name, or remove it first", file)
	}
	if err != nil {
		return "", fmt.Errorf("writing the pipeline file: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("writing the pipeline file: %w", err)
	}
	return file, nil
}

// Text returns the text of a first file for a pipeline of this name. Its error is what the parser
// says of the name.
func Text(name string) (string, error) {
	text := strings.ReplaceAll(template, "NAME", name)
	loaded, findings := lint.Load([]byte(text), pipeline.Options{File: "pipeline"})
	if loaded != nil {
		return text, nil
	}
	for _, f := range findings {
		if f.Place == "name" {
			return "", fmt.Errorf("NAME: %s", terminal.Escape(f.Message))
		}
	}
	return "", fmt.Errorf("NAME: %q is no pipeline name: 2 to 17 lower-case letters, digits and dashes, a letter first and no dash last", name)
}

const template = `# Orders from Pub/Sub, a row each in Bigtable: the newest state of every order. And a
# scan of them.
version: 1
name: NAME
bigtable: {project: my-project, instance: my-instance}

tables:
  orders:
    create: if-needed
    families:
      cf:
        gc: {maxVersions: 1}
        columns: {status: string, total: int64}

write:
  format: json
  mappings:
    - name: order
      table: orders
      rowKey: key("order", event.customer, event.id)
      timestamp: timestamp(event.updated_at)    # event time decides, also when events come late or twice
      mutations:
        - set:
            cf:
              status: event.status
              total: int(event.total_cents)
  onFailure: dead-letter                        # what can never be written goes to NAME-dead-letter

scans:
  paid:                                         # a record for each order that is paid: btf scan -f NAME.yaml paid --to -
    table: orders
    when: row.cf.?status.orValue("") == "PAID"
    emit:
      order: rowKey
      total: row.cf.?total                      # left out where the row has none
    to: {log: {}}                               # or to a topic: {pubsub: {topic: paid-orders}}

tests:
  - name: an order is one row
    message:
      data: {customer: acme, id: a-1, status: PAID, total_cents: 1250, updated_at: "2026-08-30T10:15:30.123Z"}
    expect:
      rows:
        - table: orders
          rowKey: order#acme#a-1
          timestamp: "2026-08-30T10:15:30.123Z"
          mutations:
            - set: {cf: {status: PAID, total: 1250}}
  - name: an order without a customer is refused
    message: {data: {id: a-1, status: PAID, total_cents: 1250, updated_at: "2026-08-30T10:15:30.123Z"}}
    expect: {rejected: [{mapping: order, at: rowKey, error: "no such key: customer"}]}
  - name: a paid order is a record
    row: {scan: paid, key: order#acme#a-1, cells: {cf: {status: PAID, total: 1250}}}
    expect: {records: [{order: order#acme#a-1, total: 1250}]}
  - name: an open order is none
    row: {scan: paid, key: order#acme#a-2, cells: {cf: {status: OPEN, total: 300}}}
    expect: {records: []}
`
