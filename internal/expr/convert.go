package expr

import (
	"math"
	"strconv"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// conversionFunctions declares some conversions anew: those of the interpreter give several
// texts for one value, take values that columns do not take, or lose digits.
func conversionFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function(overloads.TypeConvertString,
			cel.Overload(overloads.DoubleToString, []*cel.Type{cel.DoubleType}, cel.StringType, cel.UnaryBinding(doubleText)),
			cel.Overload(overloads.TimestampToString, []*cel.Type{cel.TimestampType}, cel.StringType, cel.UnaryBinding(timeText))),
		cel.Function(overloads.TypeConvertTimestamp,
			cel.Overload(overloads.StringToTimestamp, []*cel.Type{cel.StringType}, cel.TimestampType, cel.UnaryBinding(textTime)),
			cel.Overload(overloads.IntToTimestamp, []*cel.Type{cel.IntType}, cel.TimestampType, cel.UnaryBinding(secondsTime))),
	}
}

// doubleText returns one text for one number, however the record spells it: that of the
// integer if it is one, and otherwise the shortest that reads back as the number.
func doubleText(v ref.Val) ref.Val {
	d, ok := v.(types.Double)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	f := float64(d)
	if f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxUint64 {
		if f < 0 {
			return types.String(strconv.FormatInt(int64(f), 10))
		}
		return types.String(strconv.FormatUint(uint64(f), 10))
	}
	return types.String(strconv.FormatFloat(f, 'g', -1, 64))
}

// timeText returns one text for one instant, whatever its zone.
func timeText(v ref.Val) ref.Val {
	t, ok := v.(types.Timestamp)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	return types.String(t.UTC().Format(time.RFC3339Nano))
}

// textTime reads a time as a column of type timestamp does.
func textTime(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	t, err := cell.ParseTime(string(s))
	if err != nil {
		return types.WrapErr(failf("timestamp() %s", err))
	}
	return types.Timestamp{Time: t}
}

// lastSecond is the last second of the year 9999, since 1970.
const lastSecond = 253402300799

// secondsTime reads seconds since 1970. A number beyond the year 9999 is probably one of
// milliseconds, or of a finer unit.
func secondsTime(v ref.Val) ref.Val {
	n, ok := v.(types.Int)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	t := time.Unix(int64(n), 0).UTC()
	switch {
	case int64(n) > lastSecond:
		return types.WrapErr(failf(`timestamp() takes seconds since 1970, and the number is too large for them: of milliseconds write timestamp(0) + duration(string(event.at) + "ms")`))
	case !cell.InCalendar(t):
		return types.WrapErr(failf("timestamp() takes seconds of the years 1 to 9999"))
	}
	return types.Timestamp{Time: t}
}
