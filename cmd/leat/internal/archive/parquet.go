package archive

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/parquet-go/parquet-go"

	"leat/api"
	"leat/eventstore"
)

// columns is the table of a Parquet file: the members of an event, as the API names
// them, null where it has none. Readers of every kind know these types; the library
// makes no rows of this type, since it takes pointers and JSON for more than they are.
type columns struct {
	Position    int64       `parquet:"position,delta"`
	At          int64       `parquet:"at,timestamp(microsecond),delta"`
	Kind        string      `parquet:"kind,dict"`
	Channel     string      `parquet:"channel,optional,dict"`
	Actor       string      `parquet:"actor,optional,dict"`
	Messages    []int64     `parquet:"messageIds,optional,list" parquet-element:",delta"`
	Ranges      []idsColumn `parquet:"messageRanges,optional,list"`
	Origins     []int64     `parquet:"originMessageIds,optional,list" parquet-element:",delta"`
	Delivery    int64       `parquet:"delivery,optional,delta"`
	Offset      int64       `parquet:"offset,optional,delta"`
	DueAt       int64       `parquet:"dueAt,optional,timestamp(microsecond),delta"`
	ExpiresAt   int64       `parquet:"expiresAt,optional,timestamp(microsecond),delta"`
	RoutingKey  string      `parquet:"routingKey,optional"`
	Priority    int32       `parquet:"priority,optional"`
	Payload     []byte      `parquet:"payload,optional"`
	ContentType string      `parquet:"contentType,optional,dict"`
	Headers     []byte      `parquet:"headers,optional,json"`
	Data        []byte      `parquet:"data,optional,json"`
}

// idsColumn is a range of message ids, both inclusive.
type idsColumn struct {
	First int64 `parquet:"first,delta"`
	Last  int64 `parquet:"last,delta"`
}

var schema = parquet.SchemaOf(columns{})

// The numbers of the columns: the leaves, in the order above.
const (
	colPosition = iota
	colAt
	colKind
	colChannel
	colActor
	colMessages
	colRangesFirst
	colRangesLast
	colOrigins
	colDelivery
	colOffset
	colDueAt
	colExpiresAt
	colRoutingKey
	colPriority
	colPayload
	colContentType
	colHeaders
	colData
	colCount
)

// row makes rows.
type row struct{ values parquet.Row }

// rowOf appends an event to row, which has the bytes of the event.
func rowOf(r parquet.Row, e *api.Event) parquet.Row {
	b := row{r}
	b.required(colPosition, parquet.Int64Value(int64(e.Position)))
	b.required(colAt, parquet.Int64Value(e.At.UnixMicro()))
	b.required(colKind, parquet.ByteArrayValue([]byte(e.Kind)))
	b.text(colChannel, e.Channel)
	b.text(colActor, e.Actor)
	b.ids(colMessages, len(e.Messages), func(i int) eventstore.MessageID { return e.Messages[i] })
	b.ids(colRangesFirst, len(e.Ranges), func(i int) eventstore.MessageID { return e.Ranges[i][0] })
	b.ids(colRangesLast, len(e.Ranges), func(i int) eventstore.MessageID { return e.Ranges[i][1] })
	b.ids(colOrigins, len(e.Origins), func(i int) eventstore.MessageID { return e.Origins[i] })
	b.optional(colDelivery, e.Delivery != 0, parquet.Int64Value(int64(e.Delivery)))
	b.optional(colOffset, e.Offset != nil, parquet.Int64Value(int64(orZero(e.Offset))))
	b.optional(colDueAt, e.DueAt != nil, parquet.Int64Value(orZero(e.DueAt).UnixMicro()))
	b.optional(colExpiresAt, e.ExpiresAt != nil, parquet.Int64Value(orZero(e.ExpiresAt).UnixMicro()))
	b.optional(colRoutingKey, e.RoutingKey != nil, parquet.ByteArrayValue([]byte(orZero(e.RoutingKey))))
	b.optional(colPriority, e.Priority != nil, parquet.Int32Value(int32(orZero(e.Priority))))
	b.optional(colPayload, e.Payload != nil || e.PayloadBase64 != nil, parquet.ByteArrayValue(e.Bytes()))
	b.text(colContentType, e.ContentType)
	b.optional(colHeaders, len(e.Headers) > 0, parquet.ByteArrayValue(e.Headers))
	b.optional(colData, len(e.Data) > 0, parquet.ByteArrayValue(e.Data))
	return b.values
}

func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

func (r *row) required(column int, v parquet.Value) {
	r.values = append(r.values, v.Level(0, 0, column))
}

func (r *row) optional(column int, there bool, v parquet.Value) {
	if there {
		r.values = append(r.values, v.Level(0, 1, column))
	} else {
		r.values = append(r.values, parquet.NullValue().Level(0, 0, column))
	}
}

// text is null where the API leaves it out.
func (r *row) text(column int, s string) {
	r.optional(column, s != "", parquet.ByteArrayValue([]byte(s)))
}

// ids is a list, null where there is none.
func (r *row) ids(column, n int, at func(i int) eventstore.MessageID) {
	if n == 0 {
		r.optional(column, false, parquet.Value{})
	}
	for i := range n {
		r.values = append(r.values, parquet.Int64Value(int64(at(i))).Level(min(i, 1), 2, column))
	}
}

// eventOf is the event of a row, whose bytes it has. It is an error where a row is
// none of the table.
func eventOf(r parquet.Row) (*api.Event, error) {
	e := &api.Event{}
	var payload *[]byte
	found := 0
	r.Range(func(column int, values []parquet.Value) bool {
		found++
		v := values[0]
		switch column {
		case colMessages:
			e.Messages = idsOf(values)
		case colOrigins:
			e.Origins = idsOf(values)
		case colRangesFirst, colRangesLast:
			for i, id := range idsOf(values) {
				if column == colRangesFirst {
					e.Ranges = append(e.Ranges, [2]eventstore.MessageID{id})
				} else if i < len(e.Ranges) {
					e.Ranges[i][1] = id
				}
			}
		case colPayload:
			if !v.IsNull() {
				bytes := v.ByteArray()
				payload = &bytes
			}
		default:
			if !v.IsNull() {
				setValue(e, column, v)
			}
		}
		return true
	})
	if found != colCount {
		return nil, fmt.Errorf("a row of %d columns, not %d", found, colCount)
	}
	if payload != nil {
		e.Content = api.NewContent(*payload, e.ContentType, e.Headers)
	}
	return e, nil
}

func setValue(e *api.Event, column int, v parquet.Value) {
	switch column {
	case colPosition:
		e.Position = eventstore.Position(v.Int64())
	case colAt:
		e.At = timeOf(v)
	case colKind:
		e.Kind = string(v.ByteArray())
	case colChannel:
		e.Channel = string(v.ByteArray())
	case colActor:
		e.Actor = string(v.ByteArray())
	case colDelivery:
		e.Delivery = eventstore.Position(v.Int64())
	case colOffset:
		e.Offset = new(eventstore.Offset(v.Int64()))
	case colDueAt:
		e.DueAt = new(timeOf(v))
	case colExpiresAt:
		e.ExpiresAt = new(timeOf(v))
	case colRoutingKey:
		e.RoutingKey = new(string(v.ByteArray()))
	case colPriority:
		e.Priority = new(int(v.Int32()))
	case colContentType:
		e.ContentType = string(v.ByteArray())
	case colHeaders:
		e.Headers = json.RawMessage(v.ByteArray())
	case colData:
		e.Data = json.RawMessage(v.ByteArray())
	}
}

func timeOf(v parquet.Value) time.Time { return time.UnixMicro(v.Int64()).UTC() }

func idsOf(values []parquet.Value) (ids []eventstore.MessageID) {
	for _, v := range values {
		if !v.IsNull() {
			ids = append(ids, eventstore.MessageID(v.Int64()))
		}
	}
	return ids
}
