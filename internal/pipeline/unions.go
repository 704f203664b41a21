package pipeline

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// rejections is a number or the word unlimited, which is zero.
type rejections struct{ count }

func (r *rejections) decode(d *decoder, n *yaml.Node, a at, f field) {
	if n.Kind == yaml.ScalarNode && n.Value == "unlimited" {
		r.at = a
		return
	}
	r.count.decode(d, n, a, f)
}

// start is a word, a time, or a duration before now.
type start struct {
	at
	word string
	time time.Time
	ago  time.Duration
}

func (p *start) decode(d *decoder, n *yaml.Node, a at, f field) {
	p.at = a
	expired := f.key == "onExpired"
	takes := "latest, earliest, a quoted time, or a duration such as -2h"
	if expired {
		takes = "fail, latest, earliest or a quoted time"
	}
	s, ok := d.scalar(n, &p.at, takes)
	if !ok {
		return
	}
	if s == "latest" || s == "earliest" || expired && s == "fail" {
		p.word = s
		return
	}
	if ago, err := time.ParseDuration(s); err == nil && !expired && strings.HasPrefix(s, "-") && ago < 0 {
		p.ago = -ago
		return
	}
	t, err := parseMoment(s)
	if err != nil {
		d.reject(n, &p.at, "%q is none of what it takes: %s", s, takes)
		return
	}
	p.time = t
}

// authDoc is the word oidc, or a mapping that names a secret.
type authDoc struct {
	at
	secret secretDoc
}

type secretDoc struct {
	Bearer text `key:"bearer" only:"secret" shape:"secret" doc:"sent as a bearer token"`
	HMAC   text `key:"hmac" only:"secret" shape:"secret" doc:"the key that signs the body"`
}

func (p *authDoc) decode(d *decoder, n *yaml.Node, a at, _ field) {
	p.at = a
	if n.Kind == yaml.MappingNode {
		d.structure(n, reflectOf(&p.secret), a)
		return
	}
	var word text
	word.decode(d, n, a, field{oneOf: []string{"oidc"}})
	p.at = word.at
}
