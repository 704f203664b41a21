package pipeline

import "regexp"

func (b *builder) change(e *entry[changeDoc]) {
	doc := &e.value
	if !doc.ok() {
		return
	}
	c := &Change{
		Name: e.key, Pos: e.at.pos, AppProfile: doc.AppProfile.v,
		Table: b.fixed(doc.Table, "a change stream reads one table, so give it a table with a fixed id"),
		Start: doc.Start.start(), End: doc.End.v, Snapshot: doc.Snapshot.v, OnExpired: doc.OnExpired.start(),
		Window: doc.Window.v, IdleStop: doc.IdleStop.v, MaxIdle: doc.MaxIdle.v, MaxStreams: int(doc.MaxStreams.v),
		MaxRecordBytes: doc.MaxRecordBytes.v, Emit: emit(doc.When, doc.ForEach, doc.Emit), OnFailure: Policy(doc.OnFailure.v),
	}
	if c.Table != nil && c.Table.AuthorizedView != "" {
		b.fail(doc.Table.at, "has authorizedView: change streams are not served through a view; declare the table again, under another name and without the view, in a file of its own")
	}
	if doc.Filter != nil {
		c.Filter = b.filter(doc.Filter)
	}
	if doc.SelectedCell != nil {
		c.SelectedCell = b.selectedCell(doc, c.Table)
	}
	b.span(doc, c)
	c.To = b.sink(&doc.To, sinkUse{
		changes: true, selected: doc.SelectedCell != nil, table: c.Table, families: c.reads(), emit: doc.Emit, forEach: doc.ForEach,
	})
	if c.To.PubSub != nil && c.MaxRecordBytes > maxMessage {
		b.fail(doc.MaxRecordBytes.at, "more than a Pub/Sub message may have, 10,000,000 bytes")
	}
	b.p.Changes = append(b.p.Changes, c)
}

// reads returns the families whose entries pass the filter.
func (c *Change) reads() []*Family {
	if c.Table == nil {
		return nil
	}
	var families []*Family
	for _, f := range c.Table.Families {
		if c.Filter.Families.Match(f.Name) {
			families = append(families, f)
		}
	}
	return families
}

// maxMessage is Pub/Sub's limit for a message, in bytes.
const maxMessage = 10_000_000

func (p start) start() Start {
	switch {
	case p.word != "":
		return Start{Kind: StartKind(p.word)}
	case p.ago > 0:
		return Start{Kind: StartAgo, Ago: p.ago}
	}
	return Start{Kind: StartAt, Time: p.time}
}

// span checks where the stream starts and ends.
func (b *builder) span(doc *changeDoc, c *Change) {
	if doc.Start.ok() && doc.End.ok() && c.Start.Kind == StartAt && !c.Start.Time.Before(c.End) {
		b.fail(doc.End.at, "no time lies between start and end: end must come after start")
	}
	if !c.Snapshot {
		return
	}
	if doc.Start.ok() && c.Start.Kind != StartLatest {
		b.fail(doc.Start.at, "stands beside snapshot: true, which starts the stream by itself: leave start out")
	}
	if c.Table == nil {
		return
	}
	for _, f := range c.Table.Families {
		if f.Aggregate != NoAggregate {
			b.fail(doc.Snapshot.at, "table %q has the aggregate family %q, whose adds would count twice: leave snapshot out", c.Table.Name, f.Name)
			return
		}
	}
}

func (b *builder) filter(doc *changeFilterDoc) ChangeFilter {
	return ChangeFilter{
		Families: b.names(&doc.Families), Qualifiers: b.names(&doc.Qualifiers), DropEmpty: doc.DropEmpty.v,
	}
}

func (b *builder) names(doc *listsDoc) NameFilter {
	if doc.Include != nil && doc.Exclude != nil {
		b.fail(doc.at, "says include and exclude: use one of them")
	}
	return NameFilter{Include: regexps(doc.Include), Exclude: regexps(doc.Exclude)}
}

func regexps(patterns []pattern) []*regexp.Regexp {
	var rs []*regexp.Regexp
	for _, p := range patterns {
		if p.ok() {
			rs = append(rs, p.v)
		}
	}
	return rs
}

func (b *builder) selectedCell(doc *changeDoc, t *Table) *SelectedCell {
	cell := doc.SelectedCell
	s := &SelectedCell{Pos: cell.pos, Qualifier: cell.Qualifier.v, Cluster: cell.Cluster.v, Format: cell.Format.v}
	if cell.Family.ok() {
		s.Family = b.familyOf(t, cell.Family.v, cell.Family.at)
	}
	if s.Family != nil && s.Family.Aggregate != NoAggregate {
		b.fail(cell.Family.at, "family %q is an aggregate, whose cells are not set", s.Family.Name)
	}
	if s.Family != nil && s.Family.GC != nil {
		b.fail(cell.Family.at, "family %q has a garbage-collection rule, whose deletes the cell's producer protocol does not allow: leave its gc out", s.Family.Name)
	}
	if doc.Filter != nil {
		b.fail(doc.Filter.at, "stands beside selectedCell, which delivers that cell alone")
	}
	if doc.Emit != nil {
		b.fail(doc.Emit.at, "stands beside selectedCell, which delivers what the cell holds")
	}
	for _, a := range []at{doc.When.at, doc.ForEach.at} {
		if a.given() {
			b.fail(a, "stands beside selectedCell, which delivers what the cell holds")
		}
	}
	return s
}
