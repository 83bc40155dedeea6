package api

import (
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"leat/api/internal/strict"
)

// ContentJSON is the content type of a message that names none.
const ContentJSON = "application/json"

// Content is the part of a stored message that its publisher wrote.
type Content struct {
	Payload       json.RawMessage `json:"payload,omitempty" doc:"the published bytes, where they are a JSON value of a JSON content type"`
	PayloadBase64 *[]byte         `json:"payloadBase64,omitempty" doc:"the published bytes, where payload is absent"`
	ContentType   string          `json:"contentType,omitempty"`
	Headers       json.RawMessage `json:"headers,omitempty"`
}

// NewContent puts a payload into the field that keeps its bytes: the JSON value
// itself, or base64.
func NewContent(payload []byte, contentType string, headers json.RawMessage) Content {
	c := Content{ContentType: contentType, Headers: headers}
	if IsJSON(contentType) && embeddable(payload) {
		c.Payload = payload
	} else {
		c.PayloadBase64 = &payload
	}
	return c
}

// Bytes is the payload as it was published.
func (c Content) Bytes() []byte {
	if c.PayloadBase64 != nil {
		return *c.PayloadBase64
	}
	return c.Payload
}

// IsJSON says whether a content type names JSON: application/json or a +json
// suffix, with or without parameters.
func IsJSON(contentType string) bool {
	if contentType == ContentJSON || contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == ContentJSON || strings.HasSuffix(media, "+json"))
}

// embeddable says whether the bytes come out unchanged from inside another JSON
// document. A decoder drops white space around a value and replaces bytes that
// are not UTF-8.
func embeddable(payload []byte) bool {
	return len(payload) > 0 && !isSpace(payload[0]) && !isSpace(payload[len(payload)-1]) &&
		strict.Valid(payload) && utf8.Valid(payload)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
