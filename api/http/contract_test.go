package httpapi_test

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"leat/api"
	httpapi "leat/api/http"
)

// contract is the served OpenAPI document, for checking answers by it.
type contract struct {
	t        *testing.T
	doc      map[string]any
	compiler *jsonschema.Compiler
	seen     map[string]bool // operations that a valid answer was seen of
}

const documentURL = "mem:///openapi.json"

func loadContract(t *testing.T, s site) *contract {
	t.Helper()
	r := s.must(http.StatusOK, http.MethodGet, "/openapi.json", "")
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.body))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, compiler.AddResource(documentURL, parsed))
	return &contract{t: t, doc: parsed.(map[string]any), compiler: compiler, seen: map[string]bool{}}
}

// operations are "GET /v1/channels" and so on.
func (c *contract) operations() (list []string) {
	for path, item := range c.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// find matches a request's path with a path of the document; literal segments
// go first.
func (c *contract) find(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if _, ok := c.doc["paths"].(map[string]any)[path]; ok {
		return path
	}
	for template := range c.doc["paths"].(map[string]any) {
		pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`) + "$"
		if regexp.MustCompile(pattern).MatchString(path) {
			return template
		}
	}
	c.t.Fatalf("the document has no path for %s", path)
	return ""
}

// check validates an answer by the schema that the document gives for it.
func (c *contract) check(method, path string, r reply) {
	c.t.Helper()
	template := c.find(path)
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	status := strconv.Itoa(r.status)
	media := r.header.Get("Content-Type")
	if media == api.ContentProblem {
		status = "default"
	}
	operation := c.doc["paths"].(map[string]any)[template].(map[string]any)[strings.ToLower(method)].(map[string]any)
	answer, ok := operation["responses"].(map[string]any)[status].(map[string]any)
	require.True(c.t, ok, "%s %s: status %s is not in the document", method, template, status)
	c.seen[method+" "+template] = true
	if len(r.body) == 0 {
		require.Empty(c.t, answer["content"])
		return
	}
	require.Contains(c.t, answer["content"], media)
	schema, err := c.compiler.Compile(documentURL + "#/paths/" + escape(template) + "/" + strings.ToLower(method) +
		"/responses/" + status + "/content/" + escape(media) + "/schema")
	require.NoError(c.t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.body))
	require.NoError(c.t, err)
	require.NoError(c.t, schema.Validate(value), "%s %s: %s", method, path, r.body)
}

// The document lists the routes that are there, and no others; what each route
// answers is valid by it.
func TestContract(t *testing.T) {
	t.Parallel()
	s := setup(t)
	c := loadContract(t, s)

	var routes []string
	for _, r := range httpapi.GinRoutes() {
		if r.Method != http.MethodHead {
			routes = append(routes, r.Method+" "+regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}"))
		}
	}
	slices.Sort(routes)
	require.Equal(t, routes, c.operations())

	call := func(status int, method, path, body string, headers ...header) reply {
		t.Helper()
		r := s.must(status, method, path, body, headers...)
		c.check(method, path, r)
		return r
	}
	call(201, "PUT", "/v1/channels/q", `{"policy":{"maxDeliveries":1}}`)
	call(200, "PUT", "/v1/channels/q", `{"policy":{"maxDeliveries":1}}`)
	call(200, "PUT", "/v1/channels/q", `{}`)
	call(409, "PUT", "/v1/channels/q", `{"policy":{"maxDeliveries":2}}`)
	call(200, "PATCH", "/v1/channels/q", `{"policy":{"nonRetryable":["A"]}}`)
	call(422, "PATCH", "/v1/channels/q", `{"policy":{"lease":"0s"}}`)
	published := call(201, "POST", "/v1/channels/q/messages?partial=true",
		`{"messages":[{"payload":{"a":1},"routingKey":"k","headers":{"h":1},"ttl":"1h"},{"payload":1,"priority":77},{"payloadBase64":"","delay":"1h"}]}`)
	id := read[api.PublishResult](published).Messages[0].MessageID.String()
	call(422, "POST", "/v1/channels/q/messages", `{"messages":[{"payload":1,"priority":77},{"payload":1,"priority":77}]}`)
	call(200, "GET", "/v1/channels", "")
	call(200, "GET", "/v1/channels/q", "")
	call(404, "GET", "/v1/channels/nope", "")
	call(200, "GET", "/v1/queues/q/messages", "")
	call(400, "GET", "/v1/queues/q/consume?prefetch=5&lease=30s&routingKeys=a&routingKeys=b", "")
	call(422, "GET", "/v1/queues/q/consume?prefetch=0&lease=soon", "")
	d := read[api.PollResult](call(200, "POST", "/v1/queues/q/poll", `{}`)).Deliveries[0]
	call(200, "POST", "/v1/queues/q/poll", `{}`)
	call(200, "GET", "/v1/queues/q/messages?state=inFlight&payload=false", "")
	call(200, "GET", "/v1/messages/"+id, "")
	call(200, "POST", "/v1/queues/q/extend", `{"receipts":["`+d.Receipt+`","1:1"]}`)
	call(200, "POST", "/v1/queues/q/release", `{"receipts":["`+d.Receipt+`"]}`)
	d = read[api.PollResult](call(200, "POST", "/v1/queues/q/poll", `{"wait":"5s"}`)).Deliveries[0]
	call(200, "POST", "/v1/queues/q/nack", `{"receipts":["`+d.Receipt+`"],"reason":"because","errorClass":"A"}`)
	call(200, "POST", "/v1/queues/q/ack", `{"receipts":["`+d.Receipt+`"]}`)
	call(200, "GET", "/v1/queues/q/dead-letters", "")
	call(200, "POST", "/v1/queues/q/dead-letters/recover", `{"ids":[`+id+`,`+id+`7]}`)
	call(200, "POST", "/v1/queues/q/dead-letters/recover", `{"filter":{"routingKey":"k"},"ttl":"1h"}`)
	call(422, "POST", "/v1/queues/q/dead-letters/recover", `{"ids":[]}`)
	call(200, "POST", "/v1/queues/q/dead-letters/purge", `{"all":true}`)
	call(200, "GET", "/v1/messages/"+id, "")
	call(200, "GET", "/v1/messages/"+id+"/history", "")
	call(200, "GET", "/v1/messages/"+id+"/history?lineage=false", "")
	call(200, "GET", "/v1/messages/"+id+"/lineage", "")
	call(404, "GET", "/v1/messages/999999/lineage", "")
	call(200, "GET", "/v1/events", "")
	call(200, "GET", "/v1/events?limit=1", "")
	call(200, "GET", "/v1/status", "")
	call(200, "GET", "/v1/log", "")
	call(200, "GET", "/v1/stats?channel=q&step=1m&minPosition="+id, "")
	call(422, "GET", "/v1/stats?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z", "")
	call(200, "GET", "/v1/consumers?minPosition="+id, "")
	call(200, "GET", "/v1/failures?limit=5&minPosition="+id, "")
	call(200, "GET", "/v1/projections", "")
	for _, verb := range []string{"stop", "start", "rebuild", "retry", "skip"} {
		call(200, "POST", "/v1/projections/statistics/"+verb, "")
		call(404, "POST", "/v1/projections/nothing/"+verb, "{}")
	}
	call(200, "POST", "/v1/log/verify", "")
	sealed := read[api.SealResult](call(200, "POST", "/v1/log/seal", "")).Seal
	call(200, "POST", "/v1/log/verify?expect="+sealed.Digest, "")
	archived := `{"from":1,"to":` + sealed.To.String() + `,"events":1,"file":"f","sha256":"` + sealed.Digest + `","digest":"`
	first := call(200, "POST", "/v1/log/archived", archived+sealed.Digest+`"}`)
	require.Equal(t, first.body, call(200, "POST", "/v1/log/archived", archived+sealed.Digest+`"}`).body)
	call(422, "POST", "/v1/log/archived", archived+sealed.Digest[1:]+sealed.Digest[:1]+`"}`)
	call(422, "POST", "/v1/log/archived", archived+`"}`)
	call(422, "POST", "/v1/log/verify?expect=7&cursor=x", "")
	call(200, "POST", "/v1/projections/verify", "")
	call(200, "POST", "/v1/projections/rebuild", "")
	for _, path := range []string{"/v1/channels", "/v1/channels/q", "/v1/queues/q/messages", "/v1/queues/q/dead-letters", "/v1/messages/" + id} {
		call(200, "GET", path+"?asOf="+id, "")
		call(409, "GET", path+"?asOf=99999999", "")
		call(422, "GET", path+"?asOf=then", "")
	}
	call(200, "GET", "/v1/circuits?asOf="+id, "")
	call(404, "GET", "/v1/circuits?channel=q&asOf=2020-01-01T00:00:00Z", "")
	call(200, "POST", "/v1/queues/q/purge", "")
	call(201, "PUT", "/v1/channels/e", `{"kind":"exchange","type":"headers"}`)
	call(200, "GET", "/v1/channels/e", "")
	call(201, "PUT", "/v1/channels/f", `{"mode":"fifo","policy":{"deadLetterTo":"e","circuit":{"threshold":2}}}`)
	call(200, "GET", "/v1/channels", "")
	link := call(201, "PUT", "/v1/links", `{"source":"e","target":"q","match":{"headers":{"a":1}},"rewriteKey":"k"}`)
	call(200, "PUT", "/v1/links", `{"source":"e","target":"q","match":{"headers":{"a":1}}}`)
	call(409, "PUT", "/v1/links", `{"source":"q","target":"e"}`)
	call(200, "GET", "/v1/links?source=e&limit=1", "")
	at := "/v1/links/" + read[api.Link](link).ID.String()
	call(200, "GET", at, "")
	call(200, "PATCH", at, `{"rewriteKey":null,"enabled":false}`)
	call(204, "DELETE", at, "")
	call(404, "DELETE", at, "")
	call(409, "DELETE", "/v1/channels/e", "")
	call(201, "POST", "/v1/channels/f/messages", `{"messages":[{"routingKey":"k","payload":1},{"routingKey":"k","payload":2}]}`)
	call(200, "POST", "/v1/queues/f/circuits/open?routingKey=", "")
	call(200, "POST", "/v1/queues/f/circuits/k/open", "")
	call(200, "GET", "/v1/circuits?limit=1", "")
	call(200, "GET", "/v1/circuits?channel=f&state=open&routingKey=k", "")
	call(422, "POST", "/v1/queues/f/circuits/open", "")
	call(200, "POST", "/v1/queues/f/circuits/close?routingKey=", "")
	call(200, "POST", "/v1/queues/f/circuits/k/close", `{"recover":true}`)
	call(201, "PUT", "/v1/channels/s", `{"kind":"stream","policy":{"retention":{"age":"1h"}}}`)
	call(200, "GET", "/v1/channels/s", "")
	call(200, "GET", "/v1/channels", "")
	call(201, "POST", "/v1/channels/s/messages", `{"messages":[{"routingKey":"k","payload":1},{"payloadBase64":"AA=="},{"payload":3}]}`)
	call(200, "GET", "/v1/streams/s/messages?limit=1", "")
	call(409, "GET", "/v1/streams/s/messages?from=9", "")
	call(404, "GET", "/v1/streams/q/subscribe", "")
	call(201, "PUT", "/v1/streams/s/points/p", `{"from":"earliest"}`)
	call(201, "PUT", "/v1/streams/s/points/g", `{"partitions":2}`)
	call(200, "PUT", "/v1/streams/s/points/p", "")
	call(409, "PUT", "/v1/streams/s/points/p", `{"partitions":2}`)
	call(200, "GET", "/v1/streams/s/points", "")
	call(200, "GET", "/v1/streams/s/points/g", "")
	call(200, "POST", "/v1/streams/s/points/p/commit", `{"offset":2}`)
	call(409, "POST", "/v1/streams/s/points/p/commit", `{"offset":1}`)
	call(200, "POST", "/v1/streams/s/points/p/reset", `{"from":"1"}`)
	call(204, "DELETE", "/v1/streams/s/points/p", "")
	_, err := s.pool.Exec(t.Context(), `create table watermill_t ("offset" bigint, uuid text, payload json, metadata json, transaction_id xid8)`)
	require.NoError(t, err)
	call(201, "PUT", "/v1/relays/r", `{"topic":"t","channel":"s"}`)
	call(200, "PUT", "/v1/relays/r", `{"table":"watermill_t","channel":"s","every":"1s","from":"earliest"}`)
	call(409, "PUT", "/v1/relays/r", `{"topic":"t","channel":"q"}`)
	call(422, "PUT", "/v1/relays/r", `{"channel":"q"}`)
	call(200, "GET", "/v1/relays", "")
	_, err = s.pool.Exec(t.Context(), `insert into watermill_t values (7, 'u', '1', '{"a": "\u0000"}', pg_current_xact_id())`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return read[api.Relay](s.must(200, "GET", "/v1/relays/r", "")).Lag == 1 }, patience, 10*time.Millisecond)
	call(200, "GET", "/v1/relays/r", "")
	call(422, "POST", "/v1/relays/r/skip", `{"offset":6}`)
	call(200, "POST", "/v1/relays/r/skip", `{"offset":7}`)
	call(204, "DELETE", "/v1/relays/r", "")
	call(200, "POST", "/v1/replays", `{"source":"q","target":"s","key":"k","dryRun":true}`)
	replay := call(200, "POST", "/v1/replays", `{"source":"q","target":"s","since":"2020-01-01T00:00:00Z","rate":1000}`)
	call(404, "POST", "/v1/replays", `{"source":"q","target":"none"}`)
	call(422, "POST", "/v1/replays", `{"source":"q","target":"s","fromOffset":1}`)
	call(200, "GET", "/v1/replays?limit=1", "")
	replayed := strconv.FormatInt(int64(read[api.Replay](replay).ID), 10)
	call(200, "GET", "/v1/replays/"+replayed, "")
	call(404, "GET", "/v1/replays/1", "")
	call(200, "POST", "/v1/replays/"+replayed+"/resume", "")
	call(404, "POST", "/v1/replays/x/resume", "")
	call(204, "DELETE", "/v1/channels/q?force=true", "")
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz?verbose", "/openapi.json"} {
		call(200, "GET", path, "")
	}
	for _, operation := range c.operations() {
		require.True(t, c.seen[operation], "no answer of %s was checked", operation)
	}
}

// The schemas do not let everything pass.
func TestContractRefuses(t *testing.T) {
	t.Parallel()
	c := loadContract(t, setup(t))
	schema, err := c.compiler.Compile(documentURL + "#/components/schemas/Delivery")
	require.NoError(t, err)
	for _, text := range []string{`{}`, `7`, `{"receipt":1}`} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.Error(t, schema.Validate(value), "%s", text)
	}
}
