package httpapi

import (
	"net/http"
	"reflect"

	"leat/api"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
)

var consumeDoc = operation{
	id: "consume", summary: "Get the messages of a queue pushed, on a WebSocket", socket: true, about: consumeAbout,
	query: []parameter{
		query[int]("prefetch", "how many deliveries may be outstanding, 1 to 1000, default 100"),
		query[string]("lease", "of each delivery, such as 30s; default the queue's"),
		query[string]("consumer", "name for the log; default the Leat-Client header, else the remote host"),
		query[[]string]("routingKeys", "only messages of this key; may be given again for more keys"),
	},
	answers: []answer{{http.StatusSwitchingProtocols, "A WebSocket, of frames.", nil, ""}},
	frames: []reflect.Type{
		reflect.TypeFor[api.ConsumingFrame](), reflect.TypeFor[api.DeliveriesFrame](), reflect.TypeFor[api.SettledFrame](),
		reflect.TypeFor[api.HeartbeatFrame](), reflect.TypeFor[api.ErrorFrame](),
		reflect.TypeFor[api.SettleFrame](), reflect.TypeFor[api.NackFrame](), reflect.TypeFor[api.ExtendFrame](),
	},
}

// consumeAbout is what parameters and schemas do not say.
var consumeAbout = "Every frame is a JSON object in a text message. The server sends ConsumingFrame first, then DeliveriesFrame " +
	"as messages come, as many as prefetch leaves room for, HeartbeatFrame after 15 s without messages, SettledFrame in answer to each " +
	"settlement, with its id, and ErrorFrame: with an id, the settlement of that id was refused or has to be tried again; " +
	"without an id and close, the broker cannot deliver for the moment, and goes on by itself. The client sends SettleFrame (ack, release), " +
	"NackFrame, ExtendFrame and, if it likes, HeartbeatFrame; its frames have at most 64 KiB. Settlements of one type are answered " +
	"in order.\n\n" +
	"A delivery is outstanding until it is settled or its lease ends. What is outstanding when the connection ends is " +
	"released at once: others get it, and the attempt does not count. Consumers of a queue at one broker share what comes evenly.\n\n" +
	"What cannot be served is told by an ErrorFrame, and then the connection is closed; only a page of a forbidden origin gets 403.\n\n" + closeCodes()

// defaultPrefetch is how many deliveries may be outstanding where nothing is said.
const defaultPrefetch = 100

// consume pushes.
func (s *server) consume(c *call) error {
	q := &c.query
	request := commands.ConsumeRequest{
		Queue: c.name(), Consumer: q.filter("consumer"), Prefetch: defaultPrefetch,
		Lease: q.duration("lease"), RoutingKeys: q.given["routingKeys"],
	}
	if q.has("prefetch") {
		request.Prefetch = int(q.within("prefetch", 1, 1000))
	}
	if request.Consumer == "" {
		request.Consumer = c.actor
	}
	if q.err != nil {
		return q.err
	}
	if !ws.IsUpgrade(c.r) {
		return eventstore.NewError(eventstore.InvalidRequest, "This is for WebSockets; POST to %s to take messages without one.", "/v1/queues/{name}/poll")
	}
	return s.session(c, func(done func(ws.Summary)) error { return s.sockets.Consume(c.w, c.r, request, done) })
}
