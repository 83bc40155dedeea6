package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// LinkSpec declares a link. What is left out has its default.
type LinkSpec struct {
	Source     string  `json:"source" doc:"name of a channel"`
	Target     string  `json:"target" doc:"name of another"`
	Match      Match   `json:"match,omitzero"`
	RewriteKey *string `json:"rewriteKey,omitempty" maxLength:"255" doc:"routing key of the copies; default that of the message"`
	Enabled    *bool   `json:"enabled,omitempty" doc:"default true"`
}

// Match says which messages go along a link. An exchange fixes the type: direct
// is exact, fanout is all, topic is topic, headers is headers.
type Match struct {
	Type    string          `json:"type,omitempty" enum:"all,exact,topic,headers" doc:"default what the exchange fixes; of queues all"`
	Pattern *string         `json:"pattern,omitempty" maxLength:"255" doc:"of exact the routing key; of topic words with dots between, where * is one word and # any number of them"`
	Headers json.RawMessage `json:"headers,omitempty" doc:"of headers: names and values, an object; values are compared with their types"`
	Mode    string          `json:"mode,omitempty" enum:"all,any" doc:"of headers: whether a message needs all of them, the default, or any one"`
}

// LinkPatch changes a link. What is left out stays.
type LinkPatch struct {
	RewriteKey json.RawMessage `json:"rewriteKey,omitempty" doc:"a string; null keeps the routing key of the message"`
	Enabled    *bool           `json:"enabled,omitempty"`
}

// Link leads copies of messages from one channel to another.
type Link struct {
	ID         eventstore.LinkID `json:"id"`
	Source     string            `json:"source"`
	Target     string            `json:"target"`
	Match      Match             `json:"match"`
	RewriteKey *string           `json:"rewriteKey,omitempty"`
	Enabled    bool              `json:"enabled"`
	DeclaredAt time.Time         `json:"declaredAt"`
}

// LinkPage is a page of links, by id.
type LinkPage struct {
	Links      []Link `json:"links" nullable:"false"`
	NextCursor string `json:"nextCursor,omitempty" doc:"absent on the last page"`
}
