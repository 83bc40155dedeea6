package httpapi

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"time"

	"leat/api"
	"leat/api/internal/strict"
	"leat/commands"
	"leat/eventstore"
)

var publishDoc = operation{
	id: "publish", summary: "Publish messages: all or none, unless partial", hot: true,
	query: append([]parameter{
		query[bool]("partial", "store what is good and answer item by item"),
	}, rawQuery...),
	headers: rawHeaders,
	bodies: []body{
		{jsonType, reflect.TypeFor[api.PublishRequest](), false},
		{ndjsonType, nil, false},
		{"*/*", nil, false},
	},
	answers: []answer{gives[api.PublishResult](http.StatusCreated,
		"Stored. With partial=true: what was stored, and why the rest was not; if nothing was, the answer is a problem.")},
}

// maxFaults bounds how many bad items one answer lists.
const maxFaults = 100

// parcel is a publish request on its way in: its messages, and what is wrong
// with those that are not in it.
type parcel struct {
	messages []commands.Message
	indexes  []int // of the messages, in the request
	faults   []eventstore.Error
	size     int // of the request
}

// add takes the next item, or notes what is wrong with it.
func (p *parcel) add(m commands.Message, err error) error {
	index := p.size
	p.size++
	if err == nil {
		p.messages = append(p.messages, m)
		p.indexes = append(p.indexes, index)
		return nil
	}
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		return err
	}
	fault := *e
	fault.Index = index
	p.faults = append(p.faults, fault)
	return nil
}

func (s *server) publish(c *call) error {
	partial := c.query.flag("partial", false)
	if c.query.err != nil {
		return c.query.err
	}
	p, err := s.unpack(c)
	if err != nil {
		return err
	}
	if len(p.faults) > 0 && (!partial || len(p.messages) == 0) {
		return refusal(p.faults)
	}
	result, err := s.Commands.Publish(c.ctx(), commands.PublishRequest{
		Channel: c.name(), Actor: c.actor, Messages: p.messages, Partial: partial,
	})
	if err != nil {
		return p.reindex(err)
	}
	wire, err := p.answer(result)
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, wire)
}

// unpack reads the messages in whichever form they come.
func (s *server) unpack(c *call) (*parcel, error) {
	given := c.r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if given != "" && err != nil {
		return nil, eventstore.NewError(api.UnsupportedMediaType, "The Content-Type %q is malformed.", given)
	}
	if media == "application/x-www-form-urlencoded" {
		return nil, eventstore.NewError(api.UnsupportedMediaType,
			"A form is no message: say Content-Type: application/json, or the payload's own type.")
	}
	data, err := c.read(s.PublishBody)
	if err != nil {
		return nil, err
	}
	switch media {
	case jsonType:
		return unpackJSON(c, data)
	case ndjsonType, "application/ndjson", "application/jsonl":
		return unpackLines(c, data)
	default:
		return unpackRaw(c, data, given)
	}
}

// onlyPartial refuses the parameters of a raw message.
func onlyPartial(c *call) error {
	for name := range c.query.given {
		if name != "partial" {
			e := eventstore.NewError(eventstore.UnknownField, "belongs into the messages when the body is JSON")
			e.Field = name
			return e
		}
	}
	return nil
}

func unpackJSON(c *call, data []byte) (*parcel, error) {
	if err := onlyPartial(c); err != nil {
		return nil, err
	}
	var envelope struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if len(data) == 0 {
		return nil, eventstore.NewError(eventstore.InvalidRequest, "The request needs a body.")
	}
	if err := strict.Decode(data, &envelope); err != nil {
		return nil, err
	}
	p := &parcel{}
	for _, item := range envelope.Messages {
		if err := p.add(messageFrom(item)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// messageFrom reads one message of text that was found to be JSON.
func messageFrom(item []byte) (commands.Message, error) {
	var wire api.Message
	if err := strict.DecodeValid(item, &wire); err != nil {
		return commands.Message{}, err
	}
	return messageOf(wire)
}

// messageOf is where the two fields of a payload, and null headers, end.
func messageOf(m api.Message) (commands.Message, error) {
	payload := []byte(m.Payload)
	contentType := m.ContentType
	switch {
	case m.Payload != nil && m.PayloadBase64 != nil:
		return commands.Message{}, invalid("payloadBase64", "excludes payload")
	case m.Payload == nil && m.PayloadBase64 == nil:
		return commands.Message{}, invalid("payload", "is missing, and so is payloadBase64")
	case m.PayloadBase64 != nil:
		payload = m.PayloadBase64
		if contentType == "" {
			contentType = "application/octet-stream"
		}
	}
	headers := m.Headers
	if string(headers) == "null" {
		headers = nil
	}
	return commands.Message{
		RoutingKey:  m.RoutingKey,
		Payload:     payload,
		ContentType: contentType,
		Headers:     headers,
		Priority:    m.Priority,
		Delay:       time.Duration(m.Delay),
		DeliverAt:   timeOf(m.DeliverAt),
		TTL:         time.Duration(m.TTL),
		ExpiresAt:   timeOf(m.ExpiresAt),
		DedupID:     m.DedupID,
	}, nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// refusal makes one error of what is wrong with the items.
func refusal(faults []eventstore.Error) error {
	e := faults[0]
	if len(faults) > 1 {
		e.Errors = slices.Clone(faults[:min(len(faults), maxFaults)])
	}
	return &e
}

// reindex gives the items of an error their places in the request. Without bad
// items they have them already.
func (p *parcel) reindex(err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || len(p.faults) == 0 {
		return err
	}
	moved := *e
	moved.Index = p.place(e.Index)
	moved.Errors = slices.Clone(e.Errors)
	for i := range moved.Errors {
		moved.Errors[i].Index = p.place(moved.Errors[i].Index)
	}
	return &moved
}

func (p *parcel) place(index int) int {
	if index < 0 || index >= len(p.indexes) {
		return index
	}
	return p.indexes[index]
}

// answer puts the results where the request had the messages. When nothing was
// stored the answer is a problem.
func (p *parcel) answer(result commands.PublishResult) (api.PublishResult, error) {
	wire := api.PublishResult{Messages: make([]api.Published, p.size), Position: result.Position}
	for i := range wire.Messages {
		wire.Messages[i].RoutedTo = []string{}
	}
	faults := slices.Clone(p.faults)
	for i, m := range result.Messages {
		at := p.indexes[i]
		if m.Err != nil {
			fault := *m.Err
			fault.Index = at
			faults = append(faults, fault)
			continue
		}
		wire.Messages[at] = api.Published{
			MessageID: m.MessageID, OriginMessageID: m.OriginMessageID, Offset: m.Offset, Duplicate: m.Duplicate,
			DeadLettered: m.DeadLettered, DeadLetteredIn: m.DeadLetteredIn, RoutedTo: append(wire.Messages[at].RoutedTo, m.RoutedTo...),
		}
	}
	if len(faults) == p.size && p.size > 0 {
		slices.SortFunc(faults, func(a, b eventstore.Error) int { return a.Index - b.Index })
		return wire, refusal(faults)
	}
	for i := range faults {
		item := api.ProblemItemOf(&faults[i])
		wire.Messages[faults[i].Index].Error = &item
	}
	return wire, nil
}
