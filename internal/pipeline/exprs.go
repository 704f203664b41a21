package pipeline

import (
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// expr is an expression. Unlike a text it takes the source text of any scalar.
type expr struct {
	at
	v Expr
}

func (e *expr) decode(d *decoder, n *yaml.Node, a at, _ field) {
	e.at = a
	switch {
	case a.state == broken:
		if d.disagreed(n) {
			d.errs.restate(a, "%s: to mean the text, quote it twice, since YAML takes the outer quotes away: '\"%s\"'", disagreement(n), n.Value)
		}
		return
	case plain(n) && n.Value == "":
		d.reject(n, &e.at, "an empty expression: leave the field out where nothing is meant; inside { } a comma starts the next field, so put an expression with commas in quotes")
		return
	case n.Kind != yaml.ScalarNode:
		d.wrong(n, a, "an expression")
		if n.Style&yaml.FlowStyle != 0 {
			d.errs.amend(a, "; put it in single quotes, so that YAML does not read its brackets")
		}
		e.state = broken
		return
	case strings.TrimSpace(n.Value) == "":
		d.reject(n, &e.at, "an empty expression: leave the field out where nothing is meant")
		return
	}
	e.v = d.expression(n, a)
	if plain(n) && e.v.Exact && d.cutShort(n) {
		d.reject(n, &e.at, "a # after a space starts a comment, here in the middle of a text: put the whole expression in single quotes")
		e.v = Expr{}
	}
}

// cutShort reports whether a comment ends a plain scalar inside a quoted text.
func (d *decoder) cutShort(n *yaml.Node) bool {
	rest := strings.TrimPrefix(d.from(n.Line, n.Column), n.Value)
	var quote rune
	for _, r := range n.Value {
		switch {
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case r == quote:
			quote = 0
		}
	}
	return quote != 0 && strings.HasPrefix(strings.TrimLeft(rest, " "), "#")
}

// expression finds where the source text of a scalar starts, and whether its
// characters lie in the file as they lie in the text.
func (d *decoder) expression(n *yaml.Node, a at) Expr {
	e := Expr{Source: n.Value, Place: a.place, Pos: a.pos}
	switch n.Style {
	case 0:
		e.Exact = strings.HasPrefix(d.from(n.Line, n.Column), n.Value)
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		e.Quote = `"`
		if n.Style == yaml.SingleQuotedStyle {
			e.Quote = "'"
		}
		if strings.HasPrefix(d.from(n.Line, n.Column+1), n.Value) {
			e.Pos.Column++
			e.Exact = true
		}
	case yaml.LiteralStyle:
		e.Source = strings.TrimRight(n.Value, "\n")
		e.Pos, e.Exact = d.block(n, e.Source, a.pos)
	case yaml.FoldedStyle:
		e.Source = strings.TrimRight(n.Value, "\n")
	}
	return e
}

// block returns where the text of a literal block starts. All its lines have the
// same indentation taken off.
func (d *decoder) block(n *yaml.Node, text string, otherwise Pos) (Pos, bool) {
	lines := strings.Split(text, "\n")
	indent := -1
	for i, line := range lines {
		raw := d.from(n.Line+1+i, 1)
		if line == "" {
			continue
		}
		taken := utf8.RuneCountInString(raw) - utf8.RuneCountInString(line)
		if !strings.HasSuffix(raw, line) || indent >= 0 && taken != indent {
			return otherwise, false
		}
		indent = taken
	}
	return d.pos(n.Line+1, indent+1), true
}

// reflectOf returns the addressable value that p points to.
func reflectOf[T any](p *T) reflect.Value { return reflect.ValueOf(p).Elem() }
