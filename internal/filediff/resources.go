package filediff

import (
	"encoding/json"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
)

// text is a value as JSON, of which nothing is left out.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil { // lint's resources and roles are plain data
		return fmt.Sprintf("%+v", v)
	}
	return string(data)
}

// resources compares what surrounds the tables.
func (d *differ) resources(old, new *lint.Resources) {
	each(d, Services, old.Services, new.Services, func(s *lint.Service) string { return s.ID }, nil)
	topic := func(t *string) string { return *t }
	each(d, Topics, old.Topics, new.Topics, topic, func(old, new *string) string {
		if new == nil {
			return "what waits in its subscriptions is lost: drain them first"
		}
		return ""
	})
	each(d, Topics, old.Outputs, new.Outputs, topic, nil)
	each(d, Subscriptions, old.Subscriptions, new.Subscriptions, func(s *lint.Subscription) string { return s.ID }, func(old, new *lint.Subscription) string {
		switch {
		case old == nil:
			return ""
		case new == nil:
			return "what waits in it is lost: drain it first"
		case old.Ordered != new.Ordered:
			return "Pub/Sub cannot change the ordering of a subscription: it is replaced, and what waits in it is lost: drain it first"
		}
		return ""
	})
	each(d, Schedules, old.Schedules, new.Schedules, func(s *lint.Schedule) string { return s.ID }, nil)
}

// each compares lists by id. harm may be nil.
func each[T any](d *differ, part Part, old, new []T, id func(*T) string, harm func(old, new *T) string) {
	pointers := func(in []T) (out []*T) {
		for i := range in {
			out = append(out, &in[i])
		}
		return out
	}
	for _, p := range pairs(pointers(old), pointers(new), id) {
		var was, is, place, does string
		if p[1] != nil {
			is, place = text(p[1]), id(p[1])
		}
		if p[0] != nil {
			was, place = text(p[0]), id(p[0])
		}
		if was == is {
			continue
		}
		if harm != nil {
			does = harm(p[0], p[1])
		}
		d.add(part, place, was, is, does)
	}
}

// grants compares roles, each of which is there or not. Why it is there makes no difference.
func (d *differ) grants(old, new []lint.Grant) {
	id := func(g *lint.Grant) string {
		return fmt.Sprintf("%s: %s on %s %s", g.Principal, g.Role, g.On.Kind, g.On.Name)
	}
	plain := func(in []lint.Grant) (out []lint.Grant) {
		for _, g := range in {
			g.Why = ""
			out = append(out, g)
		}
		return out
	}
	each(d, Grants, plain(old), plain(new), id, nil)
}
