package expr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// maxKeyParts bounds the arguments of key().
const maxKeyParts = 8

// keySeparator joins the parts of key(); no part may contain it, so two different
// lists of parts never make one key.
const keySeparator = "#"

// maxKeyText bounds what key() makes, in bytes, far above what a row key can have.
const maxKeyText = 1 << 20

// maxWidth bounds the width of pad(): a row key has at most 4,096 bytes.
const maxWidth = 4096

// funcError is a failure of one of our own functions. Its text holds no value.
type funcError struct{ text string }

func (e *funcError) Error() string { return e.text }

func failf(format string, args ...any) error { return &funcError{fmt.Sprintf(format, args...)} }

// nonNull makes an optional that holds null an absent one. orValue is read as
// @nonNull(x).orValue(y), so that a null takes the default too.
const nonNull = "@nonNull"

// function is one of the functions that the pipeline language adds to CEL, over Go values.
type function struct {
	name      string
	overloads []overload
	impl      func(args []any) (any, error)
}

// takes reports whether some overload has v's type at place i.
func (f *function) takes(i int, v any) bool {
	for _, o := range f.overloads {
		if i < len(o.args) && (o.args[i].Kind() == cel.DynKind || o.args[i].String() == celName(v)) {
			return true
		}
	}
	return false
}

// celName names a Go value's type as CEL's type declarations do.
func celName(v any) string {
	if _, ok := v.(time.Time); ok {
		return cel.TimestampType.String()
	}
	if _, ok := v.(time.Duration); ok {
		return cel.DurationType.String()
	}
	return typeName(v)
}

type overload struct {
	id     string
	args   []*cel.Type
	result *cel.Type
}

// added lists them. The interpreter and the fast path call the same impl.
func added() []function {
	one := func(id string, result *cel.Type, args ...*cel.Type) []overload {
		return []overload{{id, args, result}}
	}
	return []function{
		{"key", keyOverloads(), key},
		{"pad", one("pad_int_int", cel.StringType, cel.IntType, cel.IntType), pad},
		{"salt", one("salt_string_int", cel.StringType, cel.StringType, cel.IntType), salt},
		{"hash", append(one("hash_string", cel.BytesType, cel.StringType), one("hash_bytes", cel.BytesType, cel.BytesType)...), hash},
		{"hex", one("hex_bytes", cel.StringType, cel.BytesType), hexText},
		{"reverse", one("reverse_timestamp", cel.StringType, cel.TimestampType), reverse},
		{"millis", one("millis_timestamp", cel.TimestampType, cel.TimestampType), millis},
		{"bucket", one("bucket_timestamp_duration", cel.TimestampType, cel.TimestampType, cel.DurationType), bucket},
		{"utcDate", one("utcDate_timestamp", cel.StringType, cel.TimestampType), utcDate},
	}
}

func keyOverloads() []overload {
	var out []overload
	for n := 1; n <= maxKeyParts; n++ {
		args := make([]*cel.Type, n)
		for i := range args {
			args[i] = cel.DynType
		}
		out = append(out, overload{fmt.Sprintf("key_%d", n), args, cel.StringType})
	}
	return out
}

// functions declares what the pipeline language adds.
func functions() []cel.EnvOption {
	t := cel.TypeParamType("T")
	opts := []cel.EnvOption{
		cel.Function(nonNull, cel.Overload("nonNull_optional", []*cel.Type{cel.OptionalType(t)}, cel.OptionalType(t),
			cel.UnaryBinding(dropNull))),
		cel.Macros(cel.ReceiverMacro("orValue", 1, func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			return f.NewMemberCall("orValue", f.NewCall(nonNull, target), args[0]), nil
		})),
	}
	for _, fn := range added() {
		var overloads []cel.FunctionOpt
		for _, o := range fn.overloads {
			overloads = append(overloads, cel.Overload(o.id, o.args, o.result, cel.FunctionBinding(bind(fn.impl))))
		}
		opts = append(opts, cel.Function(fn.name, overloads...))
	}
	return opts
}

func dropNull(v ref.Val) ref.Val {
	o, ok := v.(*types.Optional)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	if o.HasValue() && o.GetValue().Type() == types.NullType {
		return types.OptionalNone
	}
	return o
}

// bind makes an interpreter function of one over Go values.
func bind(impl func([]any) (any, error)) func(...ref.Val) ref.Val {
	return func(vals ...ref.Val) ref.Val {
		args := make([]any, len(vals))
		for i, v := range vals {
			a, err := native(v)
			if err != nil {
				return types.WrapErr(err)
			}
			args[i] = a
		}
		out, err := impl(args)
		if err != nil {
			return types.WrapErr(err)
		}
		return types.DefaultTypeAdapter.NativeToValue(out)
	}
}

// checkCalls refuses at load what the declared types let through: a part of key()
// that can be no part of a key.
func checkCalls(e pipeline.Expr, checked *cel.Ast) error {
	var found Errors
	rep := checked.NativeRep()
	ast.PreOrderVisit(rep.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind || x.AsCall().FunctionName() != "key" {
			return
		}
		for i, arg := range x.AsCall().Args() {
			t := rep.GetType(arg.ID())
			switch t.Kind() {
			case cel.DynKind, cel.StringKind, cel.IntKind, cel.UintKind:
				continue
			}
			instead := "convert it with string(…)"
			if isOptional(t) {
				instead = "give it a default with .orValue(…)"
			}
			found = append(found, errorAt(e, rep.SourceInfo().GetStartLocation(arg.ID()),
				fmt.Sprintf("part %d of key() is of type %s: a part is text or an integer; %s", i+1, plainTypes(t.String()), instead)))
		}
	}))
	if len(found) > 0 {
		return found
	}
	return nil
}

func key(args []any) (any, error) {
	var room [128]byte
	b := room[:0]
	for i, a := range args {
		if i > 0 {
			b = append(b, keySeparator...)
		}
		switch a := a.(type) {
		case string:
			if a == "" {
				return nil, failf("part %d of key() is empty", i+1)
			}
			if len(b)+len(a) > maxKeyText {
				return nil, failf("key() would make more than %d bytes; a row key has at most 4,096", maxKeyText)
			}
			if strings.Contains(a, keySeparator) {
				return nil, failf("part %d of key() contains %s, which joins the parts: two different records could have one key", i+1, keySeparator)
			}
			b = append(b, a...)
		case int64:
			b = strconv.AppendInt(b, a, 10)
		case uint64:
			b = strconv.AppendUint(b, a, 10)
		default:
			return nil, failf("part %d of key() is %s: a part is text or an integer", i+1, typeName(a))
		}
	}
	return string(b), nil
}

func pad(args []any) (any, error) {
	n, width := args[0].(int64), args[1].(int64)
	if n < 0 {
		return nil, failf("pad() of a negative number: its text would not sort")
	}
	if width < 1 || width > maxWidth {
		return nil, failf("the width of pad() is not 1 to %d", maxWidth)
	}
	text := strconv.FormatInt(n, 10)
	if int64(len(text)) > width {
		return nil, failf("pad(): the number has more digits than the width")
	}
	return strings.Repeat("0", int(width)-len(text)) + text, nil
}

// salt is a number below n that the text alone decides, wide enough to sort: FNV-1a,
// 64 bits, which must never change, for it is part of stored keys.
func salt(args []any) (any, error) {
	n := args[1].(int64)
	if n < 1 {
		return nil, failf("salt() over fewer than one prefix")
	}
	h := fnv.New64a()
	h.Write([]byte(args[0].(string)))
	width := int64(len(strconv.FormatInt(n-1, 10)))
	return pad([]any{int64(h.Sum64() % uint64(n)), width})
}

func hash(args []any) (any, error) {
	var sum [sha256.Size]byte
	switch a := args[0].(type) {
	case string:
		sum = sha256.Sum256([]byte(a))
	case []byte:
		sum = sha256.Sum256(a)
	}
	return sum[:], nil
}

func hexText(args []any) (any, error) { return hex.EncodeToString(args[0].([]byte)), nil }

// reverse sorts the newest first: the distance from the end of time in
// microseconds, as 16 hexadecimal digits.
func reverse(args []any) (any, error) {
	micros := args[0].(time.Time).UnixMicro()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(math.MaxInt64)-uint64(micros))
	return hex.EncodeToString(b[:]), nil
}

// millis truncates toward the past, also before 1970.
func millis(args []any) (any, error) { return floor(args[0].(time.Time), time.Millisecond), nil }

func bucket(args []any) (any, error) {
	d := args[1].(time.Duration)
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return nil, failf("the size of bucket() is not a whole number of milliseconds, at least one")
	}
	return floor(args[0].(time.Time), d), nil
}

// floor rounds down to a multiple of d since the epoch, also before 1970.
func floor(t time.Time, d time.Duration) time.Time {
	ms, step := t.UnixMilli(), d.Milliseconds()
	if rest := ms % step; rest < 0 {
		ms -= rest + step
	} else {
		ms -= rest
	}
	return time.UnixMilli(ms).UTC()
}

func utcDate(args []any) (any, error) { return args[0].(time.Time).UTC().Format(time.DateOnly), nil }
