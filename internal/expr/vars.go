package expr

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// errNoPublishTime is the error of an expression that reads the publish time of a message
// without one.
var errNoPublishTime = failf("the message has no publish time")

// Message is what expressions see of the Pub/Sub message.
type Message struct {
	ID           string
	PublishTime  time.Time // zero where the delivery has none: reading it fails
	OrderingKey  string
	Attributes   map[string]string
	Subscription string
}

// Vars is what an expression can see: in write, Event, Raw and Message; in the emit of a
// scan, Row; in that of a change stream, Change.
// Event and Item hold decoded JSON: nil, bool, int64, uint64, float64, cell.Inexact, string,
// []any or map[string]any.
type Vars struct {
	Event   any
	Item    any
	Raw     []byte
	Message *Message
	Row     *Row
	Change  *Change
}

// ResolveName is for the interpreter.
func (v *Vars) ResolveName(name string) (any, bool) {
	switch {
	case name == "item":
		return v.Item, true
	case v.Row != nil:
		return v.Row.resolve(name)
	case v.Change != nil:
		return v.Change.resolve(name)
	}
	switch name {
	case "event":
		return v.Event, true
	case "raw":
		return v.Raw, true
	case "message.id":
		return v.Message.ID, true
	case "message.publishTime":
		if v.Message.PublishTime.IsZero() {
			return types.WrapErr(errNoPublishTime), true
		}
		return v.Message.PublishTime, true
	case "message.orderingKey":
		return v.Message.OrderingKey, true
	case "message.attributes":
		if v.Message.Attributes == nil {
			return map[string]string{}, true
		}
		return v.Message.Attributes, true
	case "message.subscription":
		return v.Message.Subscription, true
	}
	return nil, false
}

// Parent is for the interpreter.
func (v *Vars) Parent() cel.Activation { return nil }
