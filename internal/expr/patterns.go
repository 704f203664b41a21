package expr

import (
	"regexp"
	"regexp/syntax"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

const (
	// maxPatternBytes and maxPatternSteps bound a pattern of matches(): its text, and its
	// steps once its repetitions are written out. They bound the cost of compiling it.
	maxPatternBytes = 1000
	maxPatternSteps = 10_000
	// maxPatterns bounds how many compiled patterns are kept. Most files have a few; a file
	// that takes patterns from its records may have any number.
	maxPatterns = 64
)

// patterns are compiled regular expressions. It is safe for concurrent use.
type patterns struct {
	mu    sync.Mutex
	known map[string]*compiled
}

// compiled is a pattern, or the error of one that is refused.
type compiled struct {
	re    *regexp.Regexp
	steps uint64
	err   error
}

// matches declares matches() anew, with a guard: the time of a match grows with the product
// of pattern and text.
func (p *patterns) matches() cel.EnvOption {
	text := []*cel.Type{cel.StringType, cel.StringType}
	return cel.Function(overloads.Matches,
		cel.Overload(overloads.Matches, text, cel.BoolType),
		cel.MemberOverload(overloads.MatchesString, text, cel.BoolType),
		cel.SingletonFunctionBinding(guard(p.cost, p.match)))
}

// match takes the text and the pattern.
func (p *patterns) match(args ...ref.Val) ref.Val {
	t, ok1 := args[0].(types.String)
	s, ok2 := args[1].(types.String)
	if !ok1 || !ok2 {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	c := p.compile(string(s))
	if c.err != nil {
		return types.WrapErr(c.err)
	}
	return types.Bool(c.re.MatchString(string(t)))
}

// cost is the product of the text's bytes and the pattern's steps, ten to a unit.
func (p *patterns) cost(args []ref.Val) uint64 {
	s, ok := args[1].(types.String)
	if !ok {
		return 1
	}
	c := p.compile(string(s))
	return 1 + (sizeOf(args[0])+1)*c.steps/10
}

func (p *patterns) compile(pattern string) *compiled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.known[pattern]; c != nil {
		return c
	}
	c := compilePattern(pattern)
	if len(pattern) > maxPatternBytes {
		return c
	}
	if p.known == nil || len(p.known) >= maxPatterns {
		p.known = map[string]*compiled{}
	}
	p.known[pattern] = c
	return c
}

func compilePattern(pattern string) *compiled {
	if len(pattern) > maxPatternBytes {
		return &compiled{err: failf("a pattern of matches() has more than %d bytes", maxPatternBytes)}
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return &compiled{err: failf("matches() takes a regular expression (RE2), which its pattern is not")}
	}
	steps := stepsOf(tree)
	if steps > maxPatternSteps {
		return &compiled{err: failf("a pattern of matches() repeats to more than %d steps: write smaller counts, as in {1,10}", maxPatternSteps)}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return &compiled{err: failf("matches() takes a regular expression (RE2), which its pattern is not")}
	}
	return &compiled{re: re, steps: uint64(steps)}
}

// stepsOf is about how many steps a pattern has once its repetitions are written out.
func stepsOf(r *syntax.Regexp) int {
	n := 1 + len(r.Rune)
	for _, sub := range r.Sub {
		n += stepsOf(sub)
	}
	if r.Op == syntax.OpRepeat {
		times := max(r.Min, r.Max)
		n *= max(times, 1)
	}
	return min(n, maxPatternSteps+1)
}
