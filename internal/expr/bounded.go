package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// maxText bounds, in bytes, the text that one call may make: more than any record has.
const maxText = 16 << 20

// bounded declares anew those functions of the strings library whose result can be far
// larger than what they are given, so that they refuse before they allocate.
func bounded() []cel.EnvOption {
	text := cel.StringType
	return []cel.EnvOption{
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{text, text, text}, text, cel.FunctionBinding(replace)),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{text, text, text, cel.IntType}, text, cel.FunctionBinding(replace))),
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
	for it := l.Iterator(); it.HasNext() == types.True; {
		part, ok := it.Next().(types.String)
		if !ok {
			return types.WrapErr(failf("join() takes a list of text"))
		}
		if b.Len() > 0 {
			b.WriteString(string(between))
		}
		if b.Len()+len(part)+len(between) > maxText {
			return types.WrapErr(failf("join() would make more than %d bytes of text", maxText))
		}
		b.WriteString(string(part))
	}
	return types.String(b.String())
}

// costs makes the interpreter count what our own functions read and write.
func costs() cel.ProgramOption {
	ids := []string{"string_replace_string_string", "string_replace_string_string_int", "list_join", "list_join_string"}
	for _, fn := range added() {
		for _, o := range fn.overloads {
			ids = append(ids, o.id)
		}
	}
	opts := make([]cost.TrackerOption, len(ids))
	for i, id := range ids {
		opts[i] = cost.OverloadTracker(id, callCost)
	}
	return cel.CostTrackerOptions(opts...)
}

// callCost is one unit and one for each ten bytes, as the interpreter's own are.
func callCost(args []ref.Val, result ref.Val) *uint64 {
	n := uint64(1) + sizeOf(result)/10
	for _, a := range args {
		n += sizeOf(a) / 10
	}
	return &n
}

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
