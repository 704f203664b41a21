package pipeline

func (b *builder) write(doc *writeDoc) {
	w := &Write{
		Pos: doc.pos, Format: Format(doc.Format.v), Skip: doc.Skip.v,
		OnUnmatched: Policy(doc.OnUnmatched.v), OnFailure: Policy(doc.OnFailure.v), Ordered: doc.Ordered.v,
		Limits: limits(&doc.Limits), Repair: b.repair(&doc.Repair),
	}
	if !doc.OnUnmatched.given() {
		w.Unsaid = append(w.Unsaid, "onUnmatched")
	}
	if !doc.OnFailure.given() {
		w.Unsaid = append(w.Unsaid, "onFailure")
	}
	b.p.Write = w
	names := map[string]int{}
	for i := range doc.Mappings {
		m := &doc.Mappings[i]
		if first, twice := names[m.Name.v]; twice && m.Name.ok() {
			b.fail(m.Name.at, "%q is the name of mapping %d already: errors and tests tell mappings by name", m.Name.v, first)
		}
		names[m.Name.v] = i
		w.Mappings = append(w.Mappings, b.mapping(m, i))
	}
	if w.Format != FormatMutation {
		if len(doc.Mappings) == 0 && !b.faulty("write.mappings") {
			b.fail(at{pos: doc.pos, place: "write.mappings"}, "is missing: nothing says which rows to write")
		}
		return
	}
	if len(doc.Mappings) > 0 {
		b.fail(doc.Format.at, "stands beside mappings: under mutation the messages hold the mutations")
	}
	if doc.OnUnmatched.given() {
		b.fail(doc.OnUnmatched.at, "stands under format: mutation, where there are no mappings")
	}
}

func limits(doc *limitsDoc) Limits {
	return Limits{
		Batch: Batch{
			MaxEntries:  int(doc.Batch.MaxEntries.v),
			MaxBytes:    doc.Batch.MaxBytes.v,
			Concurrency: int(doc.Batch.Concurrency.v),
		},
		InFlight: InFlight{
			MaxEntries:      int(doc.InFlight.MaxEntries.v),
			MaxBytes:        doc.InFlight.MaxBytes.v,
			MaxRequestBytes: doc.InFlight.MaxRequestBytes.v,
			MaxRecordBytes:  doc.InFlight.MaxRecordBytes.v,
		},
		ConsecutiveRejections: int(doc.ConsecutiveRejections.v),
		InstanceClients:       int(doc.InstanceClients.v),
		TableIdle:             doc.TableIdle.v,
	}
}

func (b *builder) repair(doc *repairDoc) Repair {
	first, longest := doc.InitialBackoff, doc.MaxBackoff
	if first.v > longest.v && !b.faulty(doc.place) {
		where := first.at
		if !first.given() {
			where = longest.at
		}
		b.fail(where, "the first pause, %v, is longer than the longest, %v", first.v, longest.v)
	}
	return Repair{InitialBackoff: first.v, MaxBackoff: longest.v, MaxAttempts: int(doc.MaxAttempts.v)}
}
