package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	celfunctions "cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// costLimit bounds one evaluation, in units of about one for each operation and each ten
// bytes of text that it touches: less than a second of processor time. The interpreter
// counts a call when it has been made, so that each call that can be long counts itself
// beforehand, and an evaluation ends at twice the limit at most.
const costLimit = 2_000_000

// errCost is the error of an evaluation over the limit.
var errCost = failf("exceeds the cost limit of %d units, of which ten bytes of text take one, and a search the product of both texts: "+
	"search in a part of the text, as in event.text.substring(0, 1000), write a shorter pattern, or take fewer elements", costLimit)

// maxText bounds, in bytes, the text that one call may make: more than any record has.
const maxText = 16 << 20

// callCost is the cost of a call, in units.
type callCost func(args []ref.Val) uint64

// costs are the costs of calls, by the names of their functions: if a type is known at run
// time only, the interpreter has no overload to count by, and would count the joining of two
// long texts as one unit. A function that is not among them has textCost. Calls of those of
// the strings library, and of matches(), are counted beforehand, too.
type costs map[string]callCost

func newCosts(p *patterns) costs {
	return costs{
		"indexOf": searchCost, "lastIndexOf": searchCost, "split": splitCost, "format": formatCost,
		"lowerAscii": textCost, "upperAscii": textCost, "trim": textCost, "reverse": runesCost, "strings.quote": runesCost,
		overloads.Matches: p.cost,
		operators.Equals:  comparisonCost, operators.NotEquals: comparisonCost, operators.In: comparisonCost, operators.OldIn: comparisonCost,
	}
}

// CallCost implements the interpreter's interface. It counts what the call makes, too.
func (c costs) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	of := c[function]
	if of == nil {
		of = textCost
	}
	n := of(args) + sizeOf(result)/10
	return &n
}

// stringFunctions declares the strings library, with a guard before its functions that are
// among the costs.
func stringFunctions(costs costs) ([]cel.EnvOption, error) {
	plain, err := cel.NewCustomEnv(ext.Strings())
	if err != nil {
		return nil, fmt.Errorf("building the strings library: %w", err)
	}
	opts := []cel.EnvOption{ext.Strings()}
	for name, fn := range plain.Functions() {
		cost := costs[name]
		if cost == nil {
			continue
		}
		bindings, err := fn.Bindings()
		if err != nil {
			return nil, fmt.Errorf("reading the function %s: %w", name, err)
		}
		for _, o := range fn.OverloadDecls() {
			binding := cel.FunctionBinding(guard(cost, implementation(bindings, o.ID())))
			declare := cel.Overload
			if o.IsMemberFunction() {
				declare = cel.MemberOverload
			}
			opts = append(opts, cel.Function(name, declare(o.ID(), o.ArgTypes(), o.ResultType(), binding)))
		}
	}
	return append(opts, replacements()...), nil
}

// implementation returns the function that implements an overload.
func implementation(bindings []*celfunctions.Overload, id string) func(...ref.Val) ref.Val {
	for _, b := range bindings {
		if b.Operator != id {
			continue
		}
		switch {
		case b.Unary != nil:
			return func(args ...ref.Val) ref.Val { return b.Unary(args[0]) }
		case b.Binary != nil:
			return func(args ...ref.Val) ref.Val { return b.Binary(args[0], args[1]) }
		}
		return b.Function
	}
	return func(args ...ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(args[0]) }
}

// guard refuses a call that would cost more than an evaluation may.
func guard(cost callCost, f func(...ref.Val) ref.Val) func(...ref.Val) ref.Val {
	return func(args ...ref.Val) ref.Val {
		if cost(args) > costLimit {
			return types.WrapErr(errCost)
		}
		return f(args...)
	}
}

// textCost is one unit and one for each ten bytes, as the interpreter's own are.
func textCost(args []ref.Val) uint64 {
	n := uint64(1)
	for _, a := range args {
		n += sizeOf(a) / 10
	}
	return n
}

// runesCost is that of a call that takes a text apart into its characters, which takes
// several times its size.
func runesCost(args []ref.Val) uint64 { return 1 + sizeOf(args[0])/3 }

// searchCost is the text's size times that of what is sought: the library compares both at
// every place.
func searchCost(args []ref.Val) uint64 {
	return runesCost(args) + sizeOf(args[0])*max(sizeOf(args[1]), 1)/10
}

// splitCost counts the parts, of which each takes room of its own.
func splitCost(args []ref.Val) uint64 {
	text, ok1 := args[0].(types.String)
	separator, ok2 := args[1].(types.String)
	if !ok1 || !ok2 {
		return 1
	}
	parts := uint64(strings.Count(string(text), string(separator))) + 1
	return textCost(args) + 10*parts
}

// formatCost counts the text that the arguments print as. The library itself bounds the
// digits that the format asks for.
func formatCost(args []ref.Val) uint64 {
	left := maxNodes
	return textCost(args[:1]) + totalSize(args[1], &left, printedSize)/5
}

// printedSize is about how many bytes a value prints as, without its elements.
func printedSize(v ref.Val) uint64 {
	switch v.(type) {
	case types.String, types.Bytes:
		return 20 + 2*sizeOf(v)
	}
	return 20
}

// comparisonCost counts the values in lists and maps, too.
func comparisonCost(args []ref.Val) uint64 {
	n := uint64(1)
	left := maxNodes
	for _, a := range args {
		n += totalSize(a, &left, comparedSize) / 10
	}
	return n
}

// comparedSize is about how many bytes of a value are compared, without its elements.
func comparedSize(v ref.Val) uint64 { return 10 + sizeOf(v) }

// totalSize adds up the sizes of a value and of all values in it. It gives up after left
// values, with a size that is over every limit.
func totalSize(v ref.Val, left *int, size func(ref.Val) uint64) uint64 {
	if *left--; *left < 0 {
		return 1 << 32
	}
	n := size(v)
	switch v := v.(type) {
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && *left >= 0; {
			n += totalSize(it.Next(), left, size)
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && *left >= 0; {
			key := it.Next()
			n += totalSize(key, left, size) + totalSize(v.Get(key), left, size)
		}
	}
	return n
}

// sizeOf is the size of a text, of bytes, or of a list without its elements, in bytes.
func sizeOf(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			return 10 * uint64(n)
		}
	}
	return 0
}

// replacements declares anew those functions of the strings library whose result can be far
// larger than their arguments, so that they refuse before they allocate, and those that
// take a long text apart into its characters for a few of them.
func replacements() []cel.EnvOption {
	text := cel.StringType
	return []cel.EnvOption{
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{text, text, text}, text, cel.FunctionBinding(replace)),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{text, text, text, cel.IntType}, text, cel.FunctionBinding(replace))),
		cel.Function("substring",
			cel.MemberOverload("string_substring_int", []*cel.Type{text, cel.IntType}, text, cel.FunctionBinding(substring)),
			cel.MemberOverload("string_substring_int_int", []*cel.Type{text, cel.IntType, cel.IntType}, text, cel.FunctionBinding(substring))),
		cel.Function("charAt",
			cel.MemberOverload("string_char_at_int", []*cel.Type{text, cel.IntType}, text, cel.BinaryBinding(charAt))),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{cel.ListType(text)}, text, cel.UnaryBinding(func(list ref.Val) ref.Val {
				return join(list, types.String(""))
			})),
			cel.MemberOverload("list_join_string", []*cel.Type{cel.ListType(text), text}, text, cel.BinaryBinding(join))),
	}
}

// replace takes the text, what to find, what to put there and, where it is given, how
// often; a negative number is no limit.
func replace(args ...ref.Val) ref.Val {
	var texts [3]string
	for i := range texts {
		t, ok := args[i].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[i])
		}
		texts[i] = string(t)
	}
	limit := -1
	if len(args) == 4 {
		n, ok := args[3].(types.Int)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[3])
		}
		limit = int(max(n, -1))
	}
	found := strings.Count(texts[0], texts[1])
	if limit >= 0 {
		found = min(found, limit)
	}
	if len(texts[0])+found*(len(texts[2])-len(texts[1])) > maxText {
		return types.WrapErr(failf("replace() would make more than %d bytes of text", maxText))
	}
	return types.String(strings.Replace(texts[0], texts[1], texts[2], limit))
}

// errIndex quotes no index, which may be data.
var errIndex = failf("an index beyond the text")

// substring takes the text, the first character and, where it is given, the one after the
// last.
func substring(args ...ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	start, ok := args[1].(types.Int)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	from, ok := offset(string(text), int64(start))
	if !ok {
		return types.WrapErr(errIndex)
	}
	rest := string(text)[from:]
	if len(args) == 2 {
		return types.String(rest)
	}
	end, isInt := args[2].(types.Int)
	if !isInt {
		return types.MaybeNoSuchOverloadErr(args[2])
	}
	to, ok := offset(rest, int64(end-start))
	if !ok {
		return types.WrapErr(errIndex)
	}
	return types.String(rest[:to])
}

// charAt returns a character as text: none just after the last.
func charAt(text, at ref.Val) ref.Val {
	t, ok1 := text.(types.String)
	n, ok2 := at.(types.Int)
	if !ok1 || !ok2 {
		return types.MaybeNoSuchOverloadErr(at)
	}
	from, ok := offset(string(t), int64(n))
	if !ok {
		return types.WrapErr(errIndex)
	}
	_, size := utf8.DecodeRuneInString(string(t)[from:])
	return t[from : from+size]
}

// offset returns how many bytes the first n characters of a text take.
func offset(s string, n int64) (int, bool) {
	if n < 0 || n > int64(len(s)) {
		return 0, false
	}
	for i := range s {
		if n == 0 {
			return i, true
		}
		n--
	}
	return len(s), n == 0
}

func join(list, separator ref.Val) ref.Val {
	l, ok := list.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(list)
	}
	between, ok := separator.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(separator)
	}
	var b strings.Builder
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; first = false {
		part, ok := it.Next().(types.String)
		if !ok {
			return types.WrapErr(failf("join() takes a list of text"))
		}
		if !first { // parts may be empty
			b.WriteString(string(between))
		}
		if b.Len()+len(part)+len(between) > maxText {
			return types.WrapErr(failf("join() would make more than %d bytes of text", maxText))
		}
		b.WriteString(string(part))
	}
	return types.String(b.String())
}
