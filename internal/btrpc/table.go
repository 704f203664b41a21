// Package btrpc makes single attempts on the generated Bigtable client and
// guarantees that each reports all that is known about its outcome: one error per
// entry, how the call ended, what the service asks for. It never retries.
package btrpc

import (
	"encoding/base64"
	"net/url"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Table addresses one table under one application profile. It is immutable and
// may be shared.
type Table struct {
	name, profile string
	view          string // full name of an authorized view; "": the whole table
	header        metadata.MD
}

// NewTable makes a Table of a full resource name
// (projects/P/instances/I/tables/T) and an application profile, empty for the
// default one.
func NewTable(name, appProfile string) *Table {
	return &Table{name: name, profile: appProfile, header: metadata.Pairs(
		"x-goog-request-params", "table_name="+url.QueryEscape(name)+"&app_profile_id="+url.QueryEscape(appProfile),
		"google-cloud-resource-prefix", name,
		"bigtable-features", features(),
	)}
}

// Through returns the table as an authorized view of it shows it: calls are restricted to
// the rows and columns that the view includes. view is the view's id; empty is the whole
// table.
func (t *Table) Through(view string) *Table {
	if view == "" {
		return t
	}
	out := *t
	out.view = t.name + "/authorizedViews/" + view
	out.header = t.header.Copy()
	out.header.Set("google-cloud-resource-prefix", out.view)
	return &out
}

// target returns the names that a request carries: that of the table or that of the view.
func (t *Table) target() (table, view string) {
	if t.view != "" {
		return "", t.view
	}
	return t.name, ""
}

// Name returns the full resource name of the table.
func (t *Table) Name() string { return t.name }

// features tells the service what this client does with its answers.
// MutateRowsRateLimit2, unlike its predecessor, keeps outcomes per entry.
func features() string {
	b, err := proto.Marshal(&bigtablepb.FeatureFlags{
		ReverseScans:            true,
		LastScannedRowResponses: true,
		MutateRowsRateLimit2:    true,
		RoutingCookie:           true,
		RetryInfo:               true,
	})
	if err != nil {
		panic(err) // a constant message
	}
	return base64.URLEncoding.EncodeToString(b)
}

const cookiePrefix = "x-goog-cbt-cookie-"

// cookiesOf collects the routing cookies of a call, to be sent with its next attempt.
func cookiesOf(headers ...metadata.MD) metadata.MD {
	var found metadata.MD
	for _, md := range headers {
		for k, v := range md {
			if len(k) > len(cookiePrefix) && k[:len(cookiePrefix)] == cookiePrefix {
				if found == nil {
					found = metadata.MD{}
				}
				found[k] = v
			}
		}
	}
	return found
}

// outgoing is the header of one attempt.
func (t *Table) outgoing(cookies metadata.MD) metadata.MD {
	if len(cookies) == 0 {
		return t.header
	}
	return metadata.Join(t.header, cookies)
}
