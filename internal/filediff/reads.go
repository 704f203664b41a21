package filediff

import (
	"fmt"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

const harmScan = "runs that are under way go on with the new definition, and `btf scan --resume` refuses them"

// scans compares the scans by name.
func (d *differ) scans() {
	for _, p := range pairs(d.old.Scans, d.new.Scans, func(s *pipeline.Scan) string { return s.Name }) {
		old, new := p[0], p[1]
		switch {
		case old == nil:
			d.add(Scans, "scans."+new.Name, "", "of table "+scanjob.TableOf(new), "")
		case new == nil:
			d.add(Scans, "scans."+old.Name, "of table "+scanjob.TableOf(old), "", "runs that are under way cannot go on")
		default:
			d.scan("scans."+old.Name, old, new)
		}
	}
}

func (d *differ) scan(place string, old, new *pipeline.Scan) {
	d.field(Scans, place+".table", scanjob.TableOf(old), scanjob.TableOf(new), "runs that are under way fail: their plan is one of another table")
	was, is := scanjob.Definition(old), scanjob.Definition(new)
	for _, part := range scanjob.Changed(was, is) {
		d.add(Scans, place+"."+part, partText(part, old, was[part]), partText(part, new, is[part]), harmScan)
	}
	d.field(Scans, place+".appProfile", old.AppProfile, new.AppProfile, "")
	d.field(Scans, place+".onFailure", string(old.OnFailure), string(new.OnFailure), "")
	d.field(Scans, place+".onLargeRow", string(old.OnLargeRow), string(new.OnLargeRow), "")
	d.field(Scans, place+".fetch", fmt.Sprintf("%+v", old.Fetch), fmt.Sprintf("%+v", new.Fetch), "")
	if (old.Emit == nil || old.Emit.ForEach.IsZero()) != (new.Emit == nil || new.Emit.ForEach.IsZero()) {
		d.add(IDs, place+".recordId", "hash of scan and row key"+index(old.Emit), "hash of scan and row key"+index(new.Emit), "records that runs under way send again have other ids")
	}
}

// partText is a part of a scan's definition, or its hash if it has no short text.
func partText(part string, s *pipeline.Scan, hash string) string {
	switch part {
	case "emit":
		return emitText(s.Emit)
	case "limit":
		return fmt.Sprintf("%d rows", s.Limit)
	case scanjob.PartSink:
		return sinkText(s.To)
	}
	return "definition " + hash
}

func index(e *pipeline.Emit) string {
	if e == nil || e.ForEach.IsZero() {
		return ""
	}
	return " and index of the record"
}

// changes compares the change streams by name.
func (d *differ) changes() {
	for _, p := range pairs(d.old.Changes, d.new.Changes, func(c *pipeline.Change) string { return c.Name }) {
		old, new := p[0], p[1]
		switch {
		case old == nil:
			d.add(Streams, "changes."+new.Name, "", "of table "+new.Table.Ref().String(), "")
		case new == nil:
			d.add(Streams, "changes."+old.Name, "of table "+old.Table.Ref().String(), "", "its position in the ledger is not read any more: a stream of another name begins at its own start")
		default:
			d.stream("changes."+old.Name, old, new)
		}
	}
}

func (d *differ) stream(place string, old, new *pipeline.Change) {
	d.field(IDs, place+".table", old.Table.Ref().String(), new.Table.Ref().String(), "it is another stream: it begins at its start, and its records have other ids")
	d.field(Streams, place+".start", startText(old.Start), startText(new.Start), "it has no effect on a stream that has begun, because the ledger keeps its start")
	d.field(Streams, place+".onExpired", startText(old.OnExpired), startText(new.OnExpired), "")
	d.field(Streams, place+".end", old.End.String(), new.End.String(), "")
	d.field(Streams, place+".appProfile", old.AppProfile, new.AppProfile, "through another cluster changes may come later, and some again")
	d.field(Streams, place+".filter", fmt.Sprintf("%+v", old.Filter), fmt.Sprintf("%+v", new.Filter), "changes before the stream's position are not read again")
	d.field(Streams, place+".snapshot", fmt.Sprint(old.Snapshot), fmt.Sprint(new.Snapshot), "")
	d.field(Streams, place+".maxRecordBytes", fmt.Sprint(old.MaxRecordBytes), fmt.Sprint(new.MaxRecordBytes), "")
	d.field(Streams, place+".onFailure", string(old.OnFailure), string(new.OnFailure), "")
	d.field(Streams, place+".emit", emitText(old.Emit), emitText(new.Emit), "")
	d.field(Streams, place+".selectedCell", selectedText(old.SelectedCell), selectedText(new.SelectedCell), "")
	pace := func(c *pipeline.Change) string {
		return fmt.Sprintf("window %s, idleStop %v, maxIdle %s, maxStreams %d", c.Window, c.IdleStop, c.MaxIdle, c.MaxStreams)
	}
	d.field(Streams, place+".pace", pace(old), pace(new), "")
	d.field(Streams, place+".to", sinkText(old.To), sinkText(new.To), "")
}

func startText(s pipeline.Start) string {
	switch s.Kind {
	case pipeline.StartAt:
		return s.Time.String()
	case pipeline.StartAgo:
		return "-" + s.Ago.String()
	}
	return string(s.Kind)
}

func emitText(e *pipeline.Emit) string {
	if e == nil {
		return "the whole"
	}
	var out []string
	for _, f := range e.Fields {
		out = append(out, f.Name+": "+f.Value.Source)
	}
	return fmt.Sprintf("{%s}, when %s, forEach %s", strings.Join(out, ", "), source(e.When), source(e.ForEach))
}

func selectedText(c *pipeline.SelectedCell) string {
	if c == nil {
		return absent
	}
	return fmt.Sprintf("%s of %s as %s", column(c.Family, c.Qualifier), c.Cluster, c.Format)
}

// sinkText is the kind of a sink and, of the sinks that are served, where it sends.
func sinkText(s pipeline.Sink) string {
	if s.PubSub != nil {
		return fmt.Sprintf("pubsub %s, orderBy %s", s.PubSub.Topic, source(s.PubSub.OrderBy))
	}
	return s.Kind()
}
