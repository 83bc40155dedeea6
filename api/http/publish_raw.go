package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"leat/api"
	"leat/api/internal/strict"
	"leat/commands"
	"leat/eventstore"
)

// rawFields are the fields of a raw message: as query parameters, and as
// headers under the second name.
var rawFields = []struct {
	field, header, doc string
	set                func(m *api.Message, text string) error
}{
	{"routingKey", "Leat-Routing-Key", "0 to 255 bytes", func(m *api.Message, text string) error {
		m.RoutingKey = text
		return nil
	}},
	{"priority", "Leat-Priority", "0 to 9", func(m *api.Message, text string) error {
		return json.Unmarshal([]byte(text), &m.Priority)
	}},
	{"delay", "Leat-Delay", "not before this long from now", func(m *api.Message, text string) error {
		return m.Delay.UnmarshalText([]byte(text))
	}},
	{"deliverAt", "Leat-Deliver-At", "not before", func(m *api.Message, text string) error {
		m.DeliverAt = new(time.Time)
		return m.DeliverAt.UnmarshalText([]byte(text))
	}},
	{"ttl", "Leat-Ttl", "never later than this long from now", func(m *api.Message, text string) error {
		return m.TTL.UnmarshalText([]byte(text))
	}},
	{"expiresAt", "Leat-Expires-At", "never from then on", func(m *api.Message, text string) error {
		m.ExpiresAt = new(time.Time)
		return m.ExpiresAt.UnmarshalText([]byte(text))
	}},
	{"dedupId", "Leat-Dedup-Id", "unique in the channel within its dedupWindow", func(m *api.Message, text string) error {
		m.DedupID = text
		return nil
	}},
}

var rawQuery, rawHeaders = rawParameters()

func rawParameters() (inQuery, inHeaders []parameter) {
	for _, f := range rawFields {
		inQuery = append(inQuery, query[string](f.field, "raw payloads only: "+f.doc))
		inHeaders = append(inHeaders, query[string](f.header, "raw payloads only: "+f.doc))
	}
	return inQuery, inHeaders
}

// unpackRaw makes one message of the body as it is.
func unpackRaw(c *call, data []byte, contentType string) (*parcel, error) {
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	wire := api.Message{PayloadBase64: data, ContentType: contentType}
	if err := setRawFields(c, &wire); err != nil {
		return nil, err
	}
	headers, err := messageHeaders(c.r.Header)
	if err != nil {
		return nil, err
	}
	wire.Headers = headers
	p := &parcel{}
	return p, p.add(messageOf(wire))
}

func setRawFields(c *call, m *api.Message) error {
	for _, f := range rawFields {
		list := c.r.Header.Values(f.header)
		if c.query.has(f.field) {
			list = append([]string{c.query.text(f.field)}, list...)
		}
		switch {
		case len(list) == 0:
			continue
		case len(list) > 1:
			return invalid(f.field, "is given twice; %s says the same", f.header)
		case !utf8.ValidString(list[0]):
			return invalid(f.field, "must be UTF-8")
		}
		if err := f.set(m, list[0]); err != nil {
			return invalid(f.field, "is not understood: %v", err)
		}
	}
	return nil
}

const headerPrefix = "leat-header-"

// messageHeaders collects what of the request's headers belongs to the message.
func messageHeaders(given http.Header) (json.RawMessage, error) {
	headers := map[string]string{}
	for name, list := range given {
		lower := strings.ToLower(name)
		key, own := strings.CutPrefix(lower, headerPrefix)
		switch {
		case own && key != "":
		case strings.HasPrefix(lower, "ce-"), lower == "traceparent", lower == "tracestate":
			key = lower
		case strings.HasPrefix(lower, "leat-") && !knownHeader(lower):
			e := eventstore.NewError(eventstore.UnknownField, "is not a header of this request")
			e.Field = name
			return nil, e
		default:
			continue
		}
		value := strings.Join(list, ", ")
		if !utf8.ValidString(value) {
			return nil, invalid(name, "must be UTF-8")
		}
		if _, twice := headers[key]; twice {
			return nil, invalid(name, "is given twice")
		}
		headers[key] = value
	}
	if len(headers) == 0 {
		return nil, nil
	}
	return json.Marshal(headers)
}

func knownHeader(lower string) bool {
	for _, f := range rawFields {
		if strings.EqualFold(f.header, lower) {
			return true
		}
	}
	return lower == "leat-client"
}

// unpackLines reads NDJSON: one message object a line; blank lines do not count.
func unpackLines(c *call, data []byte) (*parcel, error) {
	if err := onlyPartial(c); err != nil {
		return nil, err
	}
	p := &parcel{}
	for line := range bytes.Lines(data) {
		line = bytes.Trim(line, " \t\r\n")
		if len(line) == 0 {
			continue
		}
		if err := p.add(messageFromLine(line)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func messageFromLine(line []byte) (commands.Message, error) {
	if err := strict.Check(line); err != nil {
		return commands.Message{}, err
	}
	return messageFrom(line)
}
