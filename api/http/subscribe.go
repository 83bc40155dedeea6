package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	"leat/api"
	"leat/api/ws"
	"leat/eventstore"
	"leat/queries"
)

var subscribeDoc = operation{
	id: "subscribe", summary: "Read a stream as it grows: WebSocket, Server-Sent Events, or NDJSON", socket: true,
	about: subscribeAbout,
	query: []parameter{
		query[string]("from", "earliest, latest (the default: what is published from now on), an offset, or a time (RFC 3339): the first message published then or later; one to come is as latest"),
		query[int64]("epoch", "of the stream that the offset is of: if it is another one by now, the answer is epoch_changed"),
		query[string]("point", "the replication point to resume from, which beats from; it is made, at from, if there is none"),
		query[int]("partitions", "2 to 64 make the point that of a group, whose members share the stream by routing key; default what the point has, and 1 for a new one"),
		query[string]("member", "name of the subscriber towards the point; the same name again takes over; default a fresh one"),
		query[string]("key", "pattern of routing keys: words split by dots, * is one word, # zero or more; default all messages"),
		query[int]("window", "WebSocket: how many messages may be sent and not acknowledged, 1 to 1000000; default no bound"),
	},
	headers: []parameter{header[string]("Last-Event-ID", "not on a WebSocket: the offset to go on behind, instead of from; browsers send it")},
	answers: []answer{
		{http.StatusSwitchingProtocols, "A WebSocket, of frames.", nil, ""},
		{http.StatusOK, "Without an end: what Accept asks for, NDJSON otherwise.", nil, ndjsonType},
		{http.StatusOK, "", nil, sseType},
	},
	frames: []reflect.Type{
		reflect.TypeFor[api.SubscribedFrame](), reflect.TypeFor[api.MessagesFrame](), reflect.TypeFor[api.HeartbeatFrame](),
		reflect.TypeFor[api.CommittedFrame](), reflect.TypeFor[api.AssignedFrame](), reflect.TypeFor[api.ErrorFrame](),
		reflect.TypeFor[api.AckFrame](), reflect.TypeFor[api.CommitFrame](),
	},
}

// subscribeAbout is what parameters and schemas do not say.
var subscribeAbout = "With Upgrade: websocket it is a WebSocket; every frame is a JSON object in a text message. " +
	"The server sends SubscribedFrame first, then MessagesFrame, HeartbeatFrame after 15 s without messages, CommittedFrame, " +
	"AssignedFrame to members of a group, and ErrorFrame. The client sends AckFrame, CommitFrame and, if it likes, HeartbeatFrame; " +
	"its frames have at most 64 KiB. What cannot be served is told by an ErrorFrame, and then the connection is closed; " +
	"only a page of a forbidden origin gets 403.\n\n" + closeCodes() + "\n\n" +
	"With Accept: text/event-stream it is Server-Sent Events. A message is an event message with its offset as the id, behind " +
	"which a browser resumes. The first event is subscribed (a SubscribedFrame), members of a group get events assigned, " +
	"and before the end comes an event error with a Problem.\n\n" +
	"Otherwise it is NDJSON: one message a line, an empty line after 15 s without messages, and before the end a line " +
	"{\"error\": Problem}. In both, the headers " + headerEpoch + " and " + headerNext + " say where it begins. " +
	"A point is held as on a WebSocket; it is moved by POST .../points/{point}/commit."

// closeCodes lists the close codes of WebSockets.
func closeCodes() string {
	var b strings.Builder
	b.WriteString("Close codes, with the code of the problem as the reason. Connect again and resume:")
	told := false
	for _, c := range api.CloseCodes() {
		if !c.Code.Reconnect() && !told {
			told = true
			b.WriteString(" It would be the same again:")
		}
		fmt.Fprintf(&b, " %d %s.", c.Code, c.Meaning)
	}
	return b.String()
}

// subscribe serves what Accept and Upgrade ask for.
func (s *server) subscribe(c *call) error {
	request, err := subscribeRequest(c)
	if err != nil {
		return err
	}
	if ws.IsUpgrade(c.r) {
		return s.session(c, func(done func(ws.Summary)) error { return s.sockets.Subscribe(c.w, c.r, request, done) })
	}
	if !s.Origins.Allow(c.r) {
		return eventstore.NewError(api.CrossOrigin, "Pages of %q may not subscribe; the broker's --allow-origin can allow it.", c.r.Header.Get("Origin"))
	}
	f, err := framingOf(c.r, request.Pattern != "")
	if err != nil {
		return err
	}
	if request.Window > 0 {
		return invalid("window", "is for WebSockets, where messages can be acknowledged")
	}
	if id := c.r.Header.Get("Last-Event-ID"); id != "" {
		last, err := eventstore.ParseOffset(id)
		if err != nil {
			return invalid("Last-Event-ID", "must be an offset")
		}
		request.Start.Kind, request.Start.Offset = eventstore.StartOffset, last+1
	}
	if c.r.Method == http.MethodHead {
		return s.headOfSubscribe(c, f, request)
	}
	return s.subscribeLines(c, f, request)
}

// headOfSubscribe answers what GET would, and subscribes nobody: a point stays with
// who has it.
func (s *server) headOfSubscribe(c *call, f framing, request eventstore.SubscribeRequest) error {
	if request.Point != "" { // it beats from
		request.Start = eventstore.Start{Kind: eventstore.StartEarliest, Epoch: request.Start.Epoch}
	}
	if _, err := s.Queries.StreamMessages(c.ctx(), request.Stream, queries.StreamFilter{Start: request.Start, Limit: 1}); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", f.contentType())
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// session begins a WebSocket. The request is logged when that is over.
func (s *server) session(c *call, serve func(done func(ws.Summary)) error) error {
	log := s.logLater(c.r)
	return serve(func(summary ws.Summary) {
		end := summary.Reason
		if summary.Close == 0 {
			end = clientWent
		}
		log(summary.Bytes, slog.String("end", end), slog.Int64("messages", summary.Messages), slog.Int64("received", summary.Received))
	})
}

// clientWent is the end of a subscription for no reason of ours.
const clientWent = "client went"

// maxWindow bounds what a subscriber may have unacknowledged.
const maxWindow = 1_000_000

// subscribeRequest reads the parameters, which are the same for all forms.
func subscribeRequest(c *call) (eventstore.SubscribeRequest, error) {
	q := &c.query
	request := eventstore.SubscribeRequest{
		Stream:     c.name(),
		Point:      q.filter("point"),
		Partitions: int(q.within("partitions", 1, 64)),
		Member:     q.filter("member"),
		Pattern:    q.filter("key"),
		Window:     int(q.within("window", 1, maxWindow)),
		Actor:      c.actor,
	}
	if _, err := eventstore.ParsePattern(request.Pattern); err != nil {
		q.refuse("key", err)
	}
	if !eventstore.IsLabel(request.Member) {
		q.note("member", eventstore.LabelRule)
	}
	for _, name := range []string{"partitions", "member"} {
		if q.has(name) && request.Point == "" {
			q.note(name, "needs a point")
		}
	}
	start, err := startOf(q.filter("from"), q.position("epoch"))
	if err != nil {
		return request, err
	}
	request.Start = start
	return request, q.err
}
