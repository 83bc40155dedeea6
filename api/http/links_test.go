package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("e", `{"kind":"exchange","type":"topic"}`)
	other := s.must(409, http.MethodPut, "/v1/channels/e", `{"kind":"exchange","type":"direct"}`).problem()
	require.Equal(t, "type", other.Errors[0].Field)
	require.Contains(t, other.Detail, `with type "topic", not "direct"`)
	s.declare("q", `{}`)
	s.declare("f", `{"mode":"fifo"}`)
	declare := func(status int, body string) reply {
		t.Helper()
		return s.must(status, http.MethodPut, "/v1/links", body)
	}
	link := read[api.Link](declare(http.StatusCreated,
		`{"source":"e","target":"q","match":{"type":"topic","pattern":"a.#"},"rewriteKey":null,"enabled":true}`))
	require.Equal(t, "topic", link.Match.Type)
	require.Nil(t, link.RewriteKey)
	path := "/v1/links/" + link.ID.String()
	require.JSONEq(t, `{"id":`+link.ID.String()+`,"source":"e","target":"q","match":{"type":"topic","pattern":"a.#"},"enabled":true,"declaredAt":"`+
		link.DeclaredAt.Format("2006-01-02T15:04:05.999999999Z07:00")+`"}`, string(s.must(http.StatusOK, http.MethodGet, path, "").body))
	require.Equal(t, link, read[api.Link](declare(http.StatusOK, `{"source":"e","target":"q","match":{"pattern":"a.#"}}`)))

	for body, want := range map[string]api.ProblemItem{
		`{"source":"e","target":"q","match":{"pattern":"a.#"},"rewriteKey":"x"}`: {Code: eventstore.LinkConflict, Field: "rewriteKey"},
		`{"source":"e","target":"q","match":{"pattern":"a.#"},"enabled":false}`:  {Code: eventstore.LinkConflict, Field: "enabled"},
		`{"source":"e","target":"q","match":{"type":"all"}}`:                     {Code: eventstore.InvalidField, Field: "match.type"},
		`{"source":"e","target":"q"}`:                                            {Code: eventstore.InvalidField, Field: "match.pattern"},
		`{"source":"e","target":"q","match":{"pattern":7}}`:                      {Code: eventstore.InvalidField, Field: "match.pattern"},
		`{"source":"e","target":"q","match":{"pattren":"x"}}`:                    {Code: eventstore.UnknownField, Field: "match.pattren"},
		`{"source":"q","target":"e"}`:                                            {Code: eventstore.LinkCycle, Field: "target"},
		`{"source":"q","target":"q"}`:                                            {Code: eventstore.LinkCycle, Field: "target"},
		`{"source":"q","target":"f"}`:                                            {Code: eventstore.OrderLost, Field: "target"},
		`{"source":"q","target":"nope"}`:                                         {Code: eventstore.ChannelNotFound, Field: "target"},
		`{"source":"nope","target":"q"}`:                                         {Code: eventstore.ChannelNotFound, Field: "source"},
		`{"target":"q"}`:                                                         {Code: eventstore.InvalidField, Field: "source"},
	} {
		r := s.call(http.MethodPut, "/v1/links", body)
		p := r.problem()
		require.Equal(t, want.Code, p.Code, body)
		require.Len(t, p.Errors, 1, body)
		require.Equal(t, want.Field, p.Errors[0].Field, body)
	}
	require.Contains(t, s.call(http.MethodPut, "/v1/links", `{"source":"q","target":"f"}`).problem().Detail, "q -> f")

	altered := read[api.Link](s.must(http.StatusOK, http.MethodPatch, path, `{"rewriteKey":"x","enabled":false}`))
	require.Equal(t, "x", *altered.RewriteKey)
	require.False(t, altered.Enabled)
	require.Equal(t, altered, read[api.Link](s.must(http.StatusOK, http.MethodPatch, path, `{}`)))
	altered = read[api.Link](s.must(http.StatusOK, http.MethodPatch, path, `{"rewriteKey":null}`))
	require.Nil(t, altered.RewriteKey)
	for _, body := range []string{`{"rewriteKey":7}`, `{"rewriteKey":"\ud800"}`} {
		p := s.must(http.StatusUnprocessableEntity, http.MethodPatch, path, body).problem()
		require.Equal(t, "rewriteKey", p.Errors[0].Field, body)
	}
	for _, bad := range []string{"0", "x", "99999999999", "007"} {
		require.Equal(t, eventstore.LinkNotFound, s.must(http.StatusNotFound, http.MethodGet, "/v1/links/"+bad, "").problem().Code)
	}
	require.Equal(t, eventstore.ChannelNotFound, s.must(http.StatusNotFound, http.MethodGet, "/v1/links?source=nope", "").problem().Code)
	s.must(http.StatusUnprocessableEntity, http.MethodGet, "/v1/links?source=", "")
	s.must(http.StatusNoContent, http.MethodDelete, path, "")
	require.JSONEq(t, `{"links":[]}`, string(s.must(http.StatusOK, http.MethodGet, "/v1/links", "").body))
}

func TestExchange(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("e", `{"kind":"exchange","type":"fanout"}`)
	got := s.must(http.StatusOK, http.MethodGet, "/v1/channels/e", "")
	require.Contains(t, string(got.body), `"kind":"exchange","type":"fanout","declaredAt"`, "neither policy nor counts")
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/queues/e/poll", `{}`},
		{http.MethodPost, "/v1/queues/e/purge", ``},
		{http.MethodGet, "/v1/queues/e/messages", ``},
		{http.MethodGet, "/v1/queues/e/dead-letters", ``},
	} {
		p := s.must(http.StatusNotFound, c.method, c.path, c.body).problem()
		require.Equal(t, eventstore.ChannelNotFound, p.Code)
		require.Contains(t, p.Detail, "it is an exchange", c.path)
	}
	for body, field := range map[string]string{
		`{"kind":"exchange"}`:                                           "type",
		`{"kind":"exchange","type":"x"}`:                                "type",
		`{"type":"topic"}`:                                              "type",
		`{"kind":"exchange","type":"topic","mode":"fifo"}`:              "mode",
		`{"kind":"exchange","type":"topic","policy":{"lease":"1s"}}`:    "policy",
		`{"policy":{"circuit":{"enabled":true}}}`:                       "policy.circuit",
		`{"mode":"fifo","policy":{"circuit":{"threshold":0}}}`:          "policy.circuit.threshold",
		`{"mode":"fifo","policy":{"deadLetterRetention":"-1s"}}`:        "policy.deadLetterRetention",
		`{"mode":"fifo","policy":{"circuit":{"coolDown":"yesterday"}}}`: "policy.circuit.coolDown",
	} {
		p := s.must(http.StatusUnprocessableEntity, http.MethodPut, "/v1/channels/x", body).problem()
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	p := s.must(http.StatusNotFound, http.MethodPut, "/v1/channels/x", `{"policy":{"deadLetterTo":"nope"}}`).problem()
	require.Equal(t, "policy.deadLetterTo", p.Errors[0].Field)
	s.declare("f", `{"mode":"fifo"}`)
	p = s.must(http.StatusConflict, http.MethodPut, "/v1/channels/x", `{"policy":{"deadLetterTo":"f"}}`).problem()
	require.Equal(t, eventstore.OrderLost, p.Code)
	require.Equal(t, "policy.deadLetterTo", p.Errors[0].Field)
	require.NotContains(t, p.Detail, "deadLetterTo a FIFO", "the message is a sentence")
	p = s.must(http.StatusConflict, http.MethodPut, "/v1/channels/e", `{"kind":"exchange","type":"topic"}`).problem()
	require.Equal(t, "type", p.Errors[0].Field)
}
