package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"leat/api"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// Commands is what the API needs of *commands.Broker.
type Commands interface {
	DeclareChannel(ctx context.Context, actor string, spec commands.ChannelSpec) (commands.Channel, bool, error)
	AlterChannel(ctx context.Context, actor, name string, patch commands.PolicyPatch) (commands.Channel, error)
	DeleteChannel(ctx context.Context, actor, name string, force bool) error
	DeclareLink(ctx context.Context, actor string, spec commands.LinkSpec) (commands.Link, bool, error)
	AlterLink(ctx context.Context, actor string, id eventstore.LinkID, patch commands.LinkPatch) (commands.Link, error)
	DeleteLink(ctx context.Context, actor string, id eventstore.LinkID) error
	Publish(ctx context.Context, request commands.PublishRequest) (commands.PublishResult, error)
	Poll(ctx context.Context, request commands.PollRequest) ([]commands.Delivery, error)
	Consume(ctx context.Context, request commands.ConsumeRequest) (*commands.Consumer, error)
	Ack(ctx context.Context, request commands.SettleRequest) (commands.SettleResult, error)
	Nack(ctx context.Context, request commands.NackRequest) (commands.SettleResult, error)
	Extend(ctx context.Context, request commands.ExtendRequest) (commands.SettleResult, time.Time, error)
	Release(ctx context.Context, request commands.SettleRequest) (commands.SettleResult, error)
	Purge(ctx context.Context, queue, actor string) (int64, error)
	OpenCircuit(ctx context.Context, request commands.CircuitRequest) (commands.CircuitResult, error)
	CloseCircuit(ctx context.Context, request commands.CircuitRequest, revive bool) (commands.CircuitResult, error)
	Recover(ctx context.Context, request commands.RecoverRequest) (commands.DeadLettersResult, error)
	PurgeDeadLetters(ctx context.Context, choice commands.DeadLetters) (commands.DeadLettersResult, error)
	DeclareRelay(ctx context.Context, actor string, spec commands.RelaySpec) (created bool, err error)
	DeleteRelay(ctx context.Context, actor, name string) error
	SkipRelay(ctx context.Context, actor, name string, offset int64) error
	Republish(ctx context.Context, request commands.RepublishRequest) (eventstore.Replay, error)
	ResumeReplay(ctx context.Context, request commands.ResumeRequest) (eventstore.Replay, error)
}

// Queries is what the API needs of *queries.Queries.
type Queries interface {
	Channels(ctx context.Context) ([]queries.ChannelStatus, error)
	Channel(ctx context.Context, name string) (queries.ChannelStatus, error)
	MomentAt(ctx context.Context, p eventstore.Position) (queries.Moment, error)
	MomentOf(ctx context.Context, at time.Time) (queries.Moment, error)
	ChannelsAsOf(ctx context.Context, m queries.Moment) ([]queries.ChannelStatus, error)
	ChannelAsOf(ctx context.Context, name string, m queries.Moment) (queries.ChannelStatus, error)
	MessageAsOf(ctx context.Context, id eventstore.MessageID, m queries.Moment) (queries.Message, error)
	Links(ctx context.Context, f queries.LinksFilter) ([]queries.Link, string, error)
	Link(ctx context.Context, id eventstore.LinkID) (queries.Link, error)
	Messages(ctx context.Context, queue string, f queries.MessagesFilter) ([]queries.Message, string, error)
	StreamMessages(ctx context.Context, stream string, f queries.StreamFilter) (queries.StreamPage, error)
	DeadLetters(ctx context.Context, queue string, f queries.DeadLettersFilter) ([]queries.Message, string, error)
	Message(ctx context.Context, id eventstore.MessageID) (queries.Message, error)
	History(ctx context.Context, id eventstore.MessageID, f queries.HistoryFilter) (queries.History, string, error)
	Lineage(ctx context.Context, id eventstore.MessageID, f queries.LineageFilter) (queries.Lineage, error)
	Events(ctx context.Context, f queries.EventsFilter) ([]queries.Event, string, error)
	Replay(ctx context.Context, f queries.EventsFilter) (*queries.Replay, error)
	Replays(ctx context.Context, f queries.ReplaysFilter) ([]eventstore.Replay, string, error)
	ReplayState(ctx context.Context, id eventstore.Position) (eventstore.Replay, error)
	Circuits(ctx context.Context, f queries.CircuitsFilter) ([]queries.Circuit, string, error)
	Points(ctx context.Context, stream string) ([]eventstore.Point, error)
	Point(ctx context.Context, stream, point string) (eventstore.Point, error)
	Relays(ctx context.Context) ([]queries.Relay, error)
	Relay(ctx context.Context, name string) (queries.Relay, error)
	Statistics(ctx context.Context, f queries.StatisticsFilter) ([]queries.Statistics, queries.StatisticsFilter, error)
	Consumers(ctx context.Context, channel string, limit int) ([]queries.Activity, error)
	Failures(ctx context.Context, channel string, limit int) ([]queries.Failing, error)
	Projections(ctx context.Context) ([]queries.Projection, error)
	Arrive(ctx context.Context, projection string, at eventstore.Position, patience time.Duration) (eventstore.Position, error)
	Status(ctx context.Context) (queries.Status, error)
}

// Projections is what the API needs of the queue views.
type Projections interface {
	// Verify compares views and log, from the last checkpoint on or as a whole,
	// and lists at most limit differences.
	Verify(ctx context.Context, fromCheckpoint bool, limit int) ([]api.Difference, error)
	// Rebuild makes the views anew and says how many messages they hold.
	Rebuild(ctx context.Context) (int64, error)
}

// Readiness says whether the broker can serve, check by check.
type Readiness interface {
	Ready(ctx context.Context) []api.Check
}

// Config is what a server is made of. Everything without a default is needed.
type Config struct {
	Commands    Commands
	Queries     Queries
	Points      api.Points
	Projections Projections
	Async       Async
	Readiness   Readiness
	Log         Log
	Head        Head
	// Tail says how the broker hears of commits, given where the write-ahead log ends
	// (0 when that is not known). Default: by LISTEN.
	Tail        func(walEnd uint64) api.Tail
	Streams     api.Streams
	Origins     ws.Origins    // whose pages may subscribe and consume; default those of the broker's own host
	Heartbeat   time.Duration // without messages, after which a subscriber gets a sign of life; default 15 s
	Stuck       time.Duration // how long a subscriber may take for what it is sent; default 60 s
	Logger      *slog.Logger  // default slog.Default()
	Version     string        // of the broker, for status and document; default "dev"
	DatabaseURL string        // for status, without the password; default none
	PublishBody int64         // bytes of a publish request's body; default 24 MiB, which holds 16 MiB in base64
}

// otherBody bounds the bodies of everything but publishes: 10,000 receipts of
// the greatest length fit.
const otherBody = 1 << 20

type server struct {
	Config
	sockets  *ws.Server
	open     openAnswers
	started  time.Time
	document []byte // OpenAPI
}

// Handler is the whole API.
type Handler struct {
	http.Handler
	server *server
}

// New makes the handler of the whole API.
func New(cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Tail == nil {
		cfg.Tail = func(uint64) api.Tail { return api.Tail{Mode: "notify", Decoder: "pgoutput"} }
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.PublishBody == 0 {
		cfg.PublishBody = 24 << 20
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 15 * time.Second
	}
	if cfg.Stuck == 0 {
		cfg.Stuck = time.Minute
	}
	s := &server{Config: cfg, started: time.Now().UTC()}
	s.sockets = ws.New(ws.Config{
		Streams: cfg.Streams, Queues: cfg.Commands, Origins: cfg.Origins, Logger: cfg.Logger, Heartbeat: cfg.Heartbeat, Stuck: cfg.Stuck,
	})
	s.document = document(cfg.Version, s.routes())
	return &Handler{s.middleware(s.engine()), s}
}

// Shutdown ends what has no end of its own: subscriptions and WebSockets, of
// which an http.Server knows nothing. It returns when the last WebSocket is gone,
// or cut off because ctx ended.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.server.open.stop()
	return h.server.sockets.Shutdown(ctx)
}

// engine is gin as a router and nothing else.
func (s *server) engine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	// Names keep their slashes (%2F), and are unescaped as paths: gin would
	// unescape them as queries, where + is a space.
	engine.UseEscapedPath = true
	engine.UnescapePathValues = false
	engine.RedirectTrailingSlash = false
	engine.HandleMethodNotAllowed = true
	for _, r := range s.routes() {
		engine.Handle(r.method, ginPath(r.path), s.handle(r))
		if r.method == http.MethodGet {
			engine.Handle(http.MethodHead, ginPath(r.path), s.handle(r))
		}
	}
	engine.NoRoute(s.handle(route{run: noRoute}))
	engine.NoMethod(s.handle(route{run: noMethod}))
	return engine
}

// handle makes a gin handler of a route.
func (s *server) handle(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		infoOf(c.Request).hot = r.op.hot
		call := &call{w: c.Writer, r: c.Request, params: c.Params, op: r.op}
		if r.readable() {
			s.allowOrigin(c.Writer, c.Request)
		}
		err := call.prepare()
		if err == nil {
			err = r.run(call)
		}
		if err != nil && r.op.socket && ws.IsUpgrade(c.Request) {
			refusal := err
			err = s.session(call, func(done func(ws.Summary)) error {
				return s.sockets.Refuse(c.Writer, c.Request, refusal, done)
			})
		}
		if err != nil {
			s.refuse(call, err)
		}
	}
}

func noRoute(c *call) error {
	return eventstore.NewError(eventstore.NotFound, "There is nothing at %s.", c.r.URL.EscapedPath())
}

func noMethod(c *call) error {
	return eventstore.NewError(eventstore.MethodNotAllowed, "%s takes %s, not %s.",
		c.r.URL.EscapedPath(), c.w.Header().Get("Allow"), c.r.Method)
}
