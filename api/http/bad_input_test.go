package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// G8, FS6: whatever comes in that is not right is a 4xx with code, field and index,
// and nothing of it is stored.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{"policy":{"lease":"1h"}}`) // longer than the test on a slow machine
	s.declare("fifo", `{"mode":"fifo"}`)
	s.declare("other", "")
	s.publish("q", `{"payload":"untouched"}`)
	d := s.poll("q", 1)[0]
	before := s.events()

	const (
		messages = "/v1/channels/q/messages"
		none     = -1
	)
	message := func(fields string) string { return `{"messages":[{"payload":1},{` + fields + `}]}` }
	many := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	plain := header{"Content-Type": "text/plain"}

	for name, test := range map[string]struct {
		method, path, body string
		headers            header
		code               eventstore.Code
		field              string
		index              int
	}{
		"no body":                {"POST", messages, ``, header{"Content-Type": "application/json"}, "invalid_request", "", none},
		"not JSON":               {"POST", messages, `{"messages":[}`, nil, "invalid_request", "", none},
		"cut short":              {"POST", messages, `{"messages":[{"payload":1}`, nil, "invalid_request", "", none},
		"trailing garbage":       {"POST", messages, `{"messages":[{"payload":1}]} x`, nil, "invalid_request", "", none},
		"two documents":          {"POST", messages, `{"messages":[{"payload":1}]}{}`, nil, "invalid_request", "", none},
		"not UTF-8":              {"POST", messages, "{\"messages\":[{\"payload\":\"\xff\"}]}", nil, "invalid_request", "", none},
		"too deep":               {"POST", messages, message(`"payload":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), nil, "invalid_request", "", none},
		"headers too deep":       {"POST", messages, message(`"payload":1,"headers":{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`), nil, "invalid_field", "headers", 1},
		"an array":               {"POST", messages, `[]`, nil, "invalid_field", "", none},
		"messages is an object":  {"POST", messages, `{"messages":{}}`, nil, "invalid_field", "messages", none},
		"a message is a number":  {"POST", messages, `{"messages":[{"payload":1},7]}`, nil, "invalid_field", "", 1},
		"unknown field":          {"POST", messages, `{"messages":[],"partial":true}`, nil, "unknown_field", "partial", none},
		"unknown field inside":   {"POST", messages, message(`"payload":1,"key":"a"`), nil, "unknown_field", "key", 1},
		"other case":             {"POST", messages, message(`"payload":1,"RoutingKey":"a"`), nil, "unknown_field", "RoutingKey", 1},
		"field twice":            {"POST", messages, message(`"payload":1,"payload":2`), nil, "invalid_request", "payload", 1},
		"no payload":             {"POST", messages, message(`"routingKey":"a"`), nil, "invalid_field", "payload", 1},
		"both payloads":          {"POST", messages, message(`"payload":1,"payloadBase64":"eA=="`), nil, "invalid_field", "payloadBase64", 1},
		"not base64":             {"POST", messages, message(`"payloadBase64":"?"`), nil, "invalid_field", "payloadBase64", 1},
		"base64 without padding": {"POST", messages, message(`"payloadBase64":"eA"`), nil, "invalid_field", "payloadBase64", 1},
		"key of a wrong type":    {"POST", messages, message(`"payload":1,"routingKey":7`), nil, "invalid_field", "routingKey", 1},
		"key too long":           {"POST", messages, message(`"payload":1,"routingKey":"` + strings.Repeat("🔑", 64) + `"`), nil, "key_too_long", "routingKey", 1},
		"key with NUL":           {"POST", messages, message(`"payload":1,"routingKey":"a\u0000"`), nil, "invalid_field", "routingKey", 1},
		"key with half a rune":   {"POST", messages, message(`"payload":1,"routingKey":"\ud83d"`), nil, "invalid_field", "routingKey", 1},
		"priority -1":            {"POST", messages, message(`"payload":1,"priority":-1`), nil, "invalid_field", "priority", 1},
		"priority 10":            {"POST", messages, message(`"payload":1,"priority":10`), nil, "invalid_field", "priority", 1},
		"priority 2^31":          {"POST", messages, message(`"payload":1,"priority":2147483648`), nil, "invalid_field", "priority", 1},
		"priority 2^64":          {"POST", messages, message(`"payload":1,"priority":18446744073709551616`), nil, "invalid_field", "priority", 1},
		"priority 1.5":           {"POST", messages, message(`"payload":1,"priority":1.5`), nil, "invalid_field", "priority", 1},
		"priority of text":       {"POST", messages, message(`"payload":1,"priority":"1"`), nil, "invalid_field", "priority", 1},
		"priority in FIFO":       {"POST", "/v1/channels/fifo/messages", message(`"payload":1,"priority":1`), nil, "invalid_field", "priority", 1},
		"negative delay":         {"POST", messages, message(`"payload":1,"delay":"-5s"`), nil, "invalid_field", "delay", 1},
		"delay of a number":      {"POST", messages, message(`"payload":1,"delay":5`), nil, "invalid_field", "delay", 1},
		"delay without unit":     {"POST", messages, message(`"payload":1,"delay":"5"`), nil, "invalid_field", "delay", 1},
		"delay beyond int64":     {"POST", messages, message(`"payload":1,"delay":"9999999999h"`), nil, "invalid_field", "delay", 1},
		"delay and deliverAt":    {"POST", messages, message(`"payload":1,"delay":"1s","deliverAt":"2030-01-01T00:00:00Z"`), nil, "invalid_field", "deliverAt", 1},
		"deliverAt in 1970":      {"POST", messages, message(`"payload":1,"deliverAt":"1970-01-01T00:00:00Z"`), nil, "invalid_field", "deliverAt", 1},
		"deliverAt in 9999":      {"POST", messages, message(`"payload":1,"deliverAt":"9999-12-31T23:59:59Z"`), nil, "invalid_field", "deliverAt", 1},
		"deliverAt of 30 Feb":    {"POST", messages, message(`"payload":1,"deliverAt":"2030-02-30T00:00:00Z"`), nil, "invalid_field", "deliverAt", 1},
		"expiresAt in 1970":      {"POST", messages, message(`"payload":1,"expiresAt":"1970-01-01T00:00:00Z"`), nil, "invalid_field", "expiresAt", 1},
		"expiresAt without zone": {"POST", messages, message(`"payload":1,"expiresAt":"2030-01-01T00:00:00"`), nil, "invalid_field", "expiresAt", 1},
		"negative ttl":           {"POST", messages, message(`"payload":1,"ttl":"-1s"`), nil, "invalid_field", "ttl", 1},
		"headers of a string":    {"POST", messages, message(`"payload":1,"headers":"a"`), nil, "invalid_field", "headers", 1},
		"headers with NUL":       {"POST", messages, message(`"payload":1,"headers":{"a":"\u0000"}`), nil, "invalid_field", "headers", 1},
		"headers with half rune": {"POST", messages, message(`"payload":1,"headers":{"a":"\ud800"}`), nil, "invalid_field", "headers", 1},
		"headers beyond numeric": {"POST", messages, message(`"payload":1,"headers":{"a":1e200000}`), nil, "invalid_field", "headers", 1},
		"headers too large":      {"POST", messages, message(`"payload":1,"headers":{"a":"` + strings.Repeat("x", 33<<10) + `"}`), nil, "headers_too_large", "headers", 1},
		"content type too long":  {"POST", messages, message(`"payload":1,"contentType":"` + strings.Repeat("x", 300) + `"`), nil, "invalid_field", "contentType", 1},
		"dedup id too long":      {"POST", messages, message(`"payload":1,"dedupId":"` + strings.Repeat("x", 300) + `"`), nil, "invalid_field", "dedupId", 1},
		"payload too large":      {"POST", messages, message(`"payload":"` + strings.Repeat("x", 1<<20) + `"`), nil, "payload_too_large", "payload", 1},
		"batch of 17 MiB":        {"POST", messages, `{"messages":[` + many(17, `{"payload":"`+strings.Repeat("x", 1<<20-2)+`"}`) + `]}`, nil, "batch_too_large", "", none},
		"byte order mark":        {"POST", messages, "\ufeff" + `{"messages":[{"payload":1}]}`, nil, "invalid_request", "", none},
		"content type with NUL":  {"POST", messages, message(`"payload":1,"contentType":"a\u0000"`), nil, "invalid_field", "contentType", 1},
		"dedup id with NUL":      {"POST", messages, message(`"payload":1,"dedupId":"\u0000"`), nil, "invalid_field", "dedupId", 1},
		"deliverAt in 10000":     {"POST", messages, message(`"payload":1,"deliverAt":"10000-01-01T00:00:00Z"`), nil, "invalid_field", "deliverAt", 1},
		"ttl and expiresAt":      {"POST", messages, message(`"payload":1,"ttl":"1s","expiresAt":"2030-01-01T00:00:00Z"`), nil, "invalid_field", "expiresAt", 1},
		"header name twice":      {"POST", messages, message(`"payload":1,"headers":{"a":1,"a":2}`), nil, "invalid_field", "headers", 1},
		"nested headers":         {"POST", messages, message(`"payload":1,"headers":{"a":{}}`), nil, "invalid_field", "headers", 1},
		"NDJSON cut short":       {"POST", messages, `{"payload":1}` + "\n" + `{"payload":`, header{"Content-Type": "application/x-ndjson"}, "invalid_request", "", 1},
		"NDJSON array":           {"POST", messages, `{"payload":1}` + "\n" + `[{"payload":1}]`, header{"Content-Type": "application/x-ndjson"}, "invalid_field", "", 1},
		"NDJSON 10,001":          {"POST", messages, strings.Repeat(`{"payload":1}`+"\n", 10_001), header{"Content-Type": "application/x-ndjson"}, "batch_too_large", "", none},
		"raw payload too large":  {"POST", messages, strings.Repeat("x", 1<<20+1), plain, "payload_too_large", "payload", 0},
		"raw key with NUL":       {"POST", messages + "?routingKey=%00", `x`, plain, "invalid_field", "routingKey", 0},
		"raw negative ttl":       {"POST", messages + "?ttl=-1s", `x`, plain, "invalid_field", "ttl", 0},
		"body too large":         {"POST", messages, message(`"payload":"` + strings.Repeat("x", 25<<20) + `"`), nil, "payload_too_large", "", none},
		"empty batch":            {"POST", messages, `{"messages":[]}`, nil, "batch_empty", "", none},
		"no messages":            {"POST", messages, `{}`, nil, "batch_empty", "", none},
		"10,001 messages":        {"POST", messages, `{"messages":[` + many(10_001, `{"payload":1}`) + `]}`, nil, "batch_too_large", "", none},
		"partial of what":        {"POST", messages + "?partial=maybe", message(`"payload":1`), nil, "invalid_field", "partial", none},
		"unknown parameter":      {"POST", messages + "?part=1", message(`"payload":1`), nil, "unknown_field", "part", none},
		"key beside JSON":        {"POST", messages + "?routingKey=a", message(`"payload":1`), nil, "unknown_field", "routingKey", none},
		"malformed query":        {"POST", messages + "?partial=%zz", message(`"payload":1`), nil, "invalid_request", "", none},
		"a form":                 {"POST", messages, `a=b`, header{"Content-Type": "application/x-www-form-urlencoded"}, "unsupported_media_type", "", none},
		"malformed content type": {"POST", messages, `x`, header{"Content-Type": ";"}, "unsupported_media_type", "", none},
		"compressed":             {"POST", messages, `x`, header{"Content-Type": "text/plain", "Content-Encoding": "gzip"}, "unsupported_media_type", "", none},
		"raw priority":           {"POST", messages + "?priority=high", `x`, plain, "invalid_field", "priority", none},
		"raw priority 10":        {"POST", messages + "?priority=10", `x`, plain, "invalid_field", "priority", 0},
		"raw empty delay":        {"POST", messages + "?delay=", `x`, plain, "invalid_field", "delay", none},
		"raw key twice":          {"POST", messages + "?routingKey=a", `x`, header{"Content-Type": "text/plain", "Leat-Routing-Key": "a"}, "invalid_field", "routingKey", none},
		"raw parameter twice":    {"POST", messages + "?routingKey=a&routingKey=a", `x`, plain, "invalid_field", "routingKey", none},
		"raw unknown header":     {"POST", messages, `x`, header{"Content-Type": "text/plain", "Leat-Routingkey": "a"}, "unknown_field", "Leat-Routingkey", none},
		"raw latin-1 header":     {"POST", messages, `x`, header{"Content-Type": "text/plain", "Leat-Header-A": "\xe9"}, "invalid_field", "Leat-Header-A", none},
		"client too long":        {"POST", messages, message(`"payload":1`), header{"Leat-Client": strings.Repeat("x", 256)}, "invalid_field", "Leat-Client", none},
		"publish to no channel":  {"POST", "/v1/channels/nope/messages", message(`"payload":1`), nil, "channel_not_found", "", none},
		"publish to a slash":     {"POST", "/v1/channels/a%2Fb/messages", message(`"payload":1`), nil, "channel_not_found", "", none},
		"publish to NUL":         {"POST", "/v1/channels/%00/messages", message(`"payload":1`), nil, "channel_not_found", "", none},
		"publish to no UTF-8":    {"POST", "/v1/channels/%ff/messages", message(`"payload":1`), nil, "channel_not_found", "", none},

		"declare with a quote": {"PUT", "/v1/channels/a%22b", ``, nil, "invalid_field", "name", none},
		"declare SQL":          {"PUT", "/v1/channels/a;drop%20table", ``, nil, "invalid_field", "name", none},
		"declare with a slash": {"PUT", "/v1/channels/a%2Fb", ``, nil, "invalid_field", "name", none},
		"declare with NUL":     {"PUT", "/v1/channels/a%00", ``, nil, "invalid_field", "name", none},
		"declare a key":        {"PUT", "/v1/channels/%F0%9F%94%91", ``, nil, "invalid_field", "name", none},
		"declare no UTF-8":     {"PUT", "/v1/channels/%ff", ``, nil, "invalid_field", "name", none},
		"declare 256 bytes":    {"PUT", "/v1/channels/" + strings.Repeat("x", 256), ``, nil, "invalid_field", "name", none},
		"declare a topic":      {"PUT", "/v1/channels/s", `{"kind":"topic"}`, nil, "invalid_field", "kind", none},
		"a stream's mode":      {"PUT", "/v1/channels/s", `{"kind":"stream","mode":"fifo"}`, nil, "invalid_field", "mode", none},
		"a stream's lease":     {"PUT", "/v1/channels/s", `{"kind":"stream","policy":{"lease":"1s"}}`, nil, "invalid_field", "policy.lease", none},
		"a queue's retention":  {"PUT", "/v1/channels/s", `{"policy":{"retention":{"age":"1s"}}}`, nil, "invalid_field", "policy.retention", none},
		"retention of -1":      {"PUT", "/v1/channels/s", `{"kind":"stream","policy":{"retention":{"bytes":-1}}}`, nil, "invalid_field", "policy.retention.bytes", none},
		"declare a wrong mode": {"PUT", "/v1/channels/s", `{"mode":"lifo"}`, nil, "invalid_field", "mode", none},
		"lease of 0s":          {"PUT", "/v1/channels/s", `{"policy":{"lease":"0s"}}`, nil, "invalid_field", "policy.lease", none},
		"lease of a number":    {"PUT", "/v1/channels/s", `{"policy":{"lease":30}}`, nil, "invalid_field", "policy.lease", none},
		"maxDeliveries 0":      {"PUT", "/v1/channels/s", `{"policy":{"maxDeliveries":0}}`, nil, "invalid_field", "policy.maxDeliveries", none},
		"jitter 2":             {"PUT", "/v1/channels/s", `{"policy":{"retry":{"jitter":2}}}`, nil, "invalid_field", "policy.retry.jitter", none},
		"jitter beyond double": {"PUT", "/v1/channels/s", `{"policy":{"retry":{"jitter":1e999}}}`, nil, "invalid_field", "policy.retry.jitter", none},
		"unknown strategy":     {"PATCH", "/v1/channels/q", `{"policy":{"retry":{"strategy":"linear"}}}`, nil, "invalid_field", "policy.retry.strategy", none},
		"unknown setting":      {"PATCH", "/v1/channels/q", `{"policy":{"retry":{"factor":2}}}`, nil, "unknown_field", "policy.retry.factor", none},
		"alter the mode":       {"PATCH", "/v1/channels/q", `{"mode":"fifo"}`, nil, "unknown_field", "mode", none},
		"alter without body":   {"PATCH", "/v1/channels/q", ``, nil, "invalid_request", "", none},
		"alter nothing known":  {"PATCH", "/v1/channels/nope", `{}`, nil, "channel_not_found", "", none},
		"delete nothing":       {"DELETE", "/v1/channels/nope", ``, nil, "channel_not_found", "", none},
		"force of what":        {"DELETE", "/v1/channels/q?force=1", ``, nil, "invalid_field", "force", none},
		"get with NUL":         {"GET", "/v1/channels/%00", ``, nil, "channel_not_found", "", none},

		"poll 0":                {"POST", "/v1/queues/q/poll", `{"max":0}`, nil, "invalid_field", "max", none},
		"poll 1001":             {"POST", "/v1/queues/q/poll", `{"max":1001}`, nil, "invalid_field", "max", none},
		"poll for an hour":      {"POST", "/v1/queues/q/poll", `{"wait":"1h"}`, nil, "invalid_field", "wait", none},
		"poll back in time":     {"POST", "/v1/queues/q/poll", `{"wait":"-1s"}`, nil, "invalid_field", "wait", none},
		"poll lease of 0s":      {"POST", "/v1/queues/q/poll", `{"lease":"0s"}`, nil, "invalid_field", "lease", none},
		"poll lease of a year":  {"POST", "/v1/queues/q/poll", `{"lease":"9000h"}`, nil, "invalid_field", "lease", none},
		"poll keys of a string": {"POST", "/v1/queues/q/poll", `{"routingKeys":"a"}`, nil, "invalid_field", "routingKeys", none},
		"poll keys with null":   {"POST", "/v1/queues/q/poll", `{"routingKeys":["a",null]}`, nil, "invalid_field", "routingKeys", 1},
		"poll a key with NUL":   {"POST", "/v1/queues/q/poll", `{"routingKeys":["a\u0000"]}`, nil, "invalid_field", "routingKeys", 0},
		"poll as NUL":           {"POST", "/v1/queues/q/poll", `{"consumer":"\u0000"}`, nil, "invalid_field", "consumer", none},
		"poll 2^64":             {"POST", "/v1/queues/q/poll", `{"max":18446744073709551616}`, nil, "invalid_field", "max", none},
		"poll 1.5":              {"POST", "/v1/queues/q/poll", `{"max":1.5}`, nil, "invalid_field", "max", none},
		"poll a long key":       {"POST", "/v1/queues/q/poll", `{"routingKeys":["","` + strings.Repeat("x", 256) + `"]}`, nil, "key_too_long", "routingKeys", 1},
		"poll 101 keys":         {"POST", "/v1/queues/q/poll", `{"routingKeys":[` + many(101, `"k"`) + `]}`, nil, "invalid_field", "routingKeys", none},
		"poll beyond int64":     {"POST", "/v1/queues/q/poll", `{"wait":"9999999999h"}`, nil, "invalid_field", "wait", none},
		"poll for a long name":  {"POST", "/v1/queues/q/poll", `{"consumer":"` + strings.Repeat("x", 256) + `"}`, nil, "invalid_field", "consumer", none},
		"poll nothing":          {"POST", "/v1/queues/nope/poll", ``, nil, "channel_not_found", "", none},

		"ack nothing":          {"POST", "/v1/queues/q/ack", `{"receipts":[]}`, nil, "batch_empty", "", none},
		"ack without body":     {"POST", "/v1/queues/q/ack", ``, nil, "invalid_request", "", none},
		"ack 10,001":           {"POST", "/v1/queues/q/ack", `{"receipts":[` + many(10_001, `"1:1"`) + `]}`, nil, "batch_too_large", "", none},
		"ack a number":         {"POST", "/v1/queues/q/ack", `{"receipts":["1:1",1]}`, nil, "invalid_field", "receipts", 1},
		"ack garbage":          {"POST", "/v1/queues/q/ack", `{"receipts":["1:1","garbage"]}`, nil, "receipt_malformed", "receipts", 1},
		"ack huge numbers":     {"POST", "/v1/queues/q/ack", `{"receipts":["99999999999999999999:1"]}`, nil, "receipt_malformed", "receipts", 0},
		"ack negative numbers": {"POST", "/v1/queues/q/ack", `{"receipts":["-1:1"]}`, nil, "receipt_malformed", "receipts", 0},
		"ack spaces":           {"POST", "/v1/queues/q/ack", `{"receipts":[" 1:1"]}`, nil, "receipt_malformed", "receipts", 0},
		"ack leading zeros":    {"POST", "/v1/queues/q/ack", `{"receipts":["01:1"]}`, nil, "receipt_malformed", "receipts", 0},
		"ack 0":                {"POST", "/v1/queues/q/ack", `{"receipts":["1:1","0:1"]}`, nil, "receipt_malformed", "receipts", 1},
		"ack NUL":              {"POST", "/v1/queues/q/ack", `{"receipts":["1:1\u0000"]}`, nil, "receipt_malformed", "receipts", 0},
		"ack emptiness":        {"POST", "/v1/queues/q/ack", `{"receipts":[""]}`, nil, "receipt_malformed", "receipts", 0},
		"ack null":             {"POST", "/v1/queues/q/ack", `{"receipts":[null]}`, nil, "invalid_field", "receipts", 0},
		"nack garbage":         {"POST", "/v1/queues/q/nack", `{"receipts":["1:1","2^64:1"]}`, nil, "receipt_malformed", "receipts", 1},
		"nack nothing":         {"POST", "/v1/queues/q/nack", `{"action":"retry"}`, nil, "batch_empty", "", none},
		"extend garbage":       {"POST", "/v1/queues/q/extend", `{"receipts":["1:18446744073709551616"]}`, nil, "receipt_malformed", "receipts", 0},
		"release garbage":      {"POST", "/v1/queues/q/release", `{"receipts":["1-1"]}`, nil, "receipt_malformed", "receipts", 0},
		"release 10,001":       {"POST", "/v1/queues/q/release", `{"receipts":[` + many(10_001, `"1:1"`) + `]}`, nil, "batch_too_large", "", none},
		"ack in no queue":      {"POST", "/v1/queues/nope/ack", `{"receipts":["1:1"]}`, nil, "channel_not_found", "", none},
		"nack with what":       {"POST", "/v1/queues/q/nack", `{"receipts":["1:1"],"action":"explode"}`, nil, "invalid_field", "action", none},
		"nack negative delay":  {"POST", "/v1/queues/q/nack", `{"receipts":["1:1"],"delay":"-1s"}`, nil, "invalid_field", "delay", none},
		"nack long reason":     {"POST", "/v1/queues/q/nack", `{"receipts":["1:1"],"reason":"` + strings.Repeat("x", 2000) + `"}`, nil, "invalid_field", "reason", none},
		"nack NUL reason":      {"POST", "/v1/queues/q/nack", `{"receipts":["1:1"],"reason":"\u0000"}`, nil, "invalid_field", "reason", none},
		"extend by 0s":         {"POST", "/v1/queues/q/extend", `{"receipts":["1:1"],"lease":"0s"}`, nil, "invalid_field", "lease", none},
		"extend by a year":     {"POST", "/v1/queues/q/extend", `{"receipts":["1:1"],"lease":"9000h"}`, nil, "invalid_field", "lease", none},
		"purge nothing":        {"POST", "/v1/queues/nope/purge", ``, nil, "channel_not_found", "", none},
		"purge with a filter":  {"POST", "/v1/queues/q/purge", `{"routingKey":"a"}`, nil, "unknown_field", "routingKey", none},

		"peek into nothing":      {"GET", "/v1/queues/nope/messages", ``, nil, "channel_not_found", "", none},
		"peek at a state":        {"GET", "/v1/queues/q/messages?state=gone", ``, nil, "invalid_field", "state", none},
		"peek at in_flight":      {"GET", "/v1/queues/q/messages?state=in_flight", ``, nil, "invalid_field", "state", none},
		"peek at 0":              {"GET", "/v1/queues/q/messages?limit=0", ``, nil, "invalid_field", "limit", none},
		"peek at 1001":           {"GET", "/v1/queues/q/messages?limit=1001", ``, nil, "invalid_field", "limit", none},
		"peek at 2^64":           {"GET", "/v1/queues/q/messages?limit=18446744073709551616", ``, nil, "invalid_field", "limit", none},
		"peek at a key with NUL": {"GET", "/v1/queues/q/messages?routingKey=%00", ``, nil, "invalid_field", "routingKey", none},
		"peek with a cursor":     {"GET", "/v1/queues/q/messages?cursor=17", ``, nil, "invalid_field", "cursor", none},
		"dead letters of NUL":    {"GET", "/v1/queues/%00/dead-letters", ``, nil, "channel_not_found", "", none},
		"dead letters for NUL":   {"GET", "/v1/queues/q/dead-letters?reason=%00", ``, nil, "invalid_field", "reason", none},
		"dead letters why":       {"GET", "/v1/queues/q/dead-letters?reason=bad%20luck", ``, nil, "invalid_field", "reason", none},
		"dead letters for ''":    {"GET", "/v1/queues/q/dead-letters?reason=", ``, nil, "invalid_field", "reason", none},
		"0 dead letters":         {"GET", "/v1/queues/q/dead-letters?limit=0", ``, nil, "invalid_field", "limit", none},
		"1001 dead letters":      {"GET", "/v1/queues/q/dead-letters?limit=1001", ``, nil, "invalid_field", "limit", none},
		"dead letters at":        {"GET", "/v1/queues/q/dead-letters?cursor=%00", ``, nil, "invalid_field", "cursor", none},
		"peek at state ''":       {"GET", "/v1/queues/q/messages?state=", ``, nil, "invalid_field", "state", none},
		"message of no number":   {"GET", "/v1/messages/abc", ``, nil, "message_not_found", "", none},
		"message 0":              {"GET", "/v1/messages/0", ``, nil, "message_not_found", "", none},
		"message -1":             {"GET", "/v1/messages/-1/history", ``, nil, "message_not_found", "", none},
		"message 2^64":           {"GET", "/v1/messages/18446744073709551616", ``, nil, "message_not_found", "", none},
		"history at a cursor":    {"GET", "/v1/messages/1/history?cursor=1", ``, nil, "invalid_field", "cursor", none},
		"lineage":                {"GET", "/v1/messages/first/lineage", ``, nil, "message_not_found", "", none},
		"lineage at a cursor":    {"GET", "/v1/messages/1/lineage?cursor=1", ``, nil, "invalid_field", "cursor", none},
		"lineage of 1001":        {"GET", "/v1/messages/1/lineage?limit=1001", ``, nil, "invalid_field", "limit", none},
		"history with what":      {"GET", "/v1/messages/1/history?lineage=some", ``, nil, "invalid_field", "lineage", none},
		"history of 1001":        {"GET", "/v1/messages/1/history?limit=1001", ``, nil, "invalid_field", "limit", none},
		"events from what":       {"GET", "/v1/events?from=x", ``, nil, "invalid_field", "from", none},
		"events from 0":          {"GET", "/v1/events?from=0", ``, nil, "invalid_field", "from", none},
		"events to 0":            {"GET", "/v1/events?to=0", ``, nil, "invalid_field", "to", none},
		"events to 2^64":         {"GET", "/v1/events?to=18446744073709551616", ``, nil, "invalid_field", "to", none},
		"events of message 0":    {"GET", "/v1/events?messageId=0", ``, nil, "invalid_field", "messageId", none},
		"events by ''":           {"GET", "/v1/events?actor=", ``, nil, "invalid_field", "actor", none},
		"events of channel ''":   {"GET", "/v1/events?channel=", ``, nil, "invalid_field", "channel", none},
		"events at a cursor":     {"GET", "/v1/events?cursor=MQ", ``, nil, "invalid_field", "cursor", none},
		"events of a NUL key":    {"GET", "/v1/events?routingKey=%00", ``, nil, "invalid_field", "routingKey", none},
		"0 events":               {"GET", "/v1/events?limit=0", ``, nil, "invalid_field", "limit", none},
		"1001 events":            {"GET", "/v1/events?limit=1001", ``, nil, "invalid_field", "limit", none},
		"events in February":     {"GET", "/v1/events?until=2026-02-30T00:00:00Z", ``, nil, "invalid_field", "until", none},
		"events in what order":   {"GET", "/v1/events?order=up", ``, nil, "invalid_field", "order", none},
		"events to < from":       {"GET", "/v1/events?from=5&to=4", ``, nil, "invalid_field", "to", none},
		"events until < since":   {"GET", "/v1/events?since=2026-02-02T00:00:00Z&until=2026-02-01T00:00:00Z", ``, nil, "invalid_field", "until", none},
		"events to come":         {"GET", "/v1/events?from=99999999", ``, nil, "position_ahead", "", none},
		"follow pages":           {"GET", "/v1/events?follow=true", ``, nil, "invalid_field", "follow", none},
		"follow backwards":       {"GET", "/v1/events?follow=true&order=desc", ``, header{"Accept": "application/x-ndjson"}, "invalid_field", "order", none},
		"follow until":           {"GET", "/v1/events?follow=true&until=2100-01-01T00:00:00Z", ``, header{"Accept": "application/x-ndjson"}, "invalid_field", "until", none},
		"follow behind what":     {"GET", "/v1/events", ``, header{"Accept": "text/event-stream", "Last-Event-Id": "x"}, "invalid_field", "Last-Event-ID", none},
		"as of never":            {"GET", "/v1/channels?asOf=", ``, nil, "invalid_field", "asOf", none},
		"as of 0":                {"GET", "/v1/channels/q?asOf=0", ``, nil, "invalid_field", "asOf", none},
		"as of tomorrow":         {"GET", "/v1/queues/q/messages?asOf=2100-01-01T00:00:00Z", ``, nil, "position_ahead", "", none},
		"as of before it":        {"GET", "/v1/channels/q?asOf=2020-01-01T00:00:00Z", ``, nil, "channel_not_found", "", none},
		"message before it":      {"GET", "/v1/messages/1?asOf=2020-01-01T00:00:00Z", ``, nil, "message_not_found", "", none},
		"events of a kind":       {"GET", "/v1/events?kind=message.eaten", ``, nil, "invalid_field", "kind", none},
		"events since when":      {"GET", "/v1/events?since=yesterday", ``, nil, "invalid_field", "since", none},
		"events of no channel":   {"GET", "/v1/events?channel=nope", ``, nil, "channel_not_found", "", none},
		"events of NUL":          {"GET", "/v1/events?channel=%00", ``, nil, "invalid_field", "channel", none},
		"events by NUL":          {"GET", "/v1/events?actor=%00", ``, nil, "invalid_field", "actor", none},
		"relay NUL":              {"GET", "/v1/relays/%00", ``, nil, "relay_not_found", "", none},
		"no relay NUL":           {"DELETE", "/v1/relays/%00", ``, nil, "invalid_field", "name", none},
		"replay of tomorrow":     {"POST", "/v1/replays", `{"source":"q","target":"q","since":"2100-01-01T00:00:00Z"}`, nil, "position_ahead", "since", none},
		"replay to < from":       {"POST", "/v1/replays", `{"source":"q","target":"q","from":5,"to":4}`, nil, "invalid_field", "to", none},
		"stats of what":          {"GET", "/v1/stats?bogus=1", ``, nil, "unknown_field", "bogus", none},
		"stats from 99999":       {"GET", "/v1/stats?from=99999-01-01T00:00:00Z", ``, nil, "invalid_field", "from", none},
		"stats from year 0":      {"GET", "/v1/stats?from=0000-01-01T00:00:00Z", ``, nil, "invalid_field", "from", none},
		"stats step -1m":         {"GET", "/v1/stats?step=-1m", ``, nil, "invalid_field", "step", none},
		"stats step NaN":         {"GET", "/v1/stats?step=NaN", ``, nil, "invalid_field", "step", none},
		"stats of channel NUL":   {"GET", "/v1/stats?channel=%00", ``, nil, "channel_not_found", "", none},
		"stats at 2^64":          {"GET", "/v1/stats?minPosition=18446744073709551616", ``, nil, "invalid_field", "minPosition", none},
		"consumers -1":           {"GET", "/v1/consumers?limit=-1", ``, nil, "invalid_field", "limit", none},
		"consumers of NUL":       {"GET", "/v1/consumers?channel=%00", ``, nil, "channel_not_found", "", none},
		"failures NaN":           {"GET", "/v1/failures?limit=NaN", ``, nil, "invalid_field", "limit", none},
		"verify with a body":     {"POST", "/v1/projections/verify", `{"all":true}`, nil, "unknown_field", "all", none},
	} {
		t.Run(name, func(t *testing.T) {
			s := site{t: t, url: s.url}
			var headers []header
			if test.headers != nil {
				headers = []header{test.headers}
			}
			p := s.call(test.method, test.path, test.body, headers...).problem()
			require.Equal(t, test.code, p.Code, "%+v", p)
			require.Less(t, p.Status, 500)
			if test.field == "" && test.index == none {
				return
			}
			require.NotEmpty(t, p.Errors)
			require.Equal(t, test.field, p.Errors[0].Field)
			if test.index == none {
				require.Nil(t, p.Errors[0].Index)
			} else {
				require.Equal(t, test.index, *p.Errors[0].Index)
			}
		})
	}

	require.Equal(t, before, s.events(), "nothing of all this is stored")
	elsewhere := s.must(http.StatusOK, http.MethodPost, "/v1/queues/other/ack", `{"receipts":`+receipts(d)+`}`)
	require.True(t, contains(elsewhere.body, `"code":"receipt_unknown"`), "%s", elsewhere.body)
	unknown := s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/ack", `{"receipts":["9223372036854775807:9223372036854775807"]}`)
	require.True(t, contains(unknown.body, `"code":"receipt_unknown"`), "%s", unknown.body)
	s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/ack", `{"receipts":`+receipts(d)+`}`)
}

// What looks odd but is right.
func TestOddInput(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	for _, message := range []string{
		`{"payload":null}`,
		`{"payload":1,"routingKey":""}`,
		`{"payload":1,"routingKey":null,"headers":null,"delay":null,"deliverAt":null,"dedupId":null,"payloadBase64":null}`,
		`{"payload":1,"routingKey":"a\"b;drop table ../ \ufffd %s 🔑"}`,
		`{"payload":1,"routingKey":"` + strings.Repeat("k", 255) + `"}`,
		`{"payloadBase64":""}`,
		`{"payload":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
		`{"p\u0061yload":"escaped name"}`,
	} {
		s.publish("q", message)
	}
	deliveries := s.poll("q", 8)
	require.Equal(t, "a\"b;drop table ../ \ufffd %s 🔑", deliveries[3].RoutingKey)
	s.must(http.StatusCreated, http.MethodPost, "/v1/channels/q/messages",
		`{"messages":[`+strings.TrimSuffix(strings.Repeat(`{"payload":1},`, 10_000), ",")+`]}`)
	for _, query := range []string{
		"since=0000-01-01T00:00:00Z&until=9999-12-31T23:59:59Z",
		"to=9223372036854775807", "messageId=9223372036854775807", "actor=%F0%9F%94%91%27%22%2F",
		"kind=message.published,message.published&channel=q", "limit=1000",
	} {
		s.must(http.StatusOK, http.MethodGet, "/v1/events?"+query, "")
	}
	for _, name := range []string{"Foo", "foo", "0-a_b.c", strings.Repeat("x", 255)} {
		s.declare(name, "")
	}
}
