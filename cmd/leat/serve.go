package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	httpapi "leat/api/http"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/pgserver"
	"leat/projections"
	"leat/projections/async"
	"leat/queries"
	"leat/replication"
)

const (
	// stopWithin bounds a graceful stop: long polls are answered, commands finished.
	stopWithin = 10 * time.Second
	// checkpointWithin bounds the checkpoint of a clean stop, without which the
	// next rebuild only takes longer.
	checkpointWithin = 5 * time.Second
)

type serveConfig struct {
	Listen      string        // host:port
	Data        string        // folder of the private PostgreSQL
	DatabaseURL string        // an existing server instead; "" for the private one
	DirectURL   string        // the same server without a transaction pooler; "" when DatabaseURL is direct
	Origins     ws.Origins    // whose pages may subscribe and consume
	Tail        string        // auto, wal or notify: whether to read the write-ahead log
	Decoder     string        // output plugin to read it with; "" for PostgreSQL's own
	Retention   time.Duration // how long the log keeps events; 0 is for ever
	Archived    bool          // whether it keeps what is in no archive
	Seal        time.Duration // how old an event may be without a seal; 0 makes no seals
	Projections bool          // whether to keep the asynchronous projections here
	Durable     *bool         // whether the queue views are to survive a crash of PostgreSQL; nil leaves them as they are
}

func serveCommand() *cobra.Command {
	var config serveConfig
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker, on a private PostgreSQL unless a database URL is given",
	}
	flags := cmd.Flags()
	flags.StringVar(&config.Listen, "listen", env("LEAT_LISTEN", "127.0.0.1:8080"), "address of the HTTP API, loopback only (LEAT_LISTEN)")
	flags.StringVar(&config.Data, "data", env("LEAT_DATA", "data"), "folder of the private PostgreSQL (LEAT_DATA)")
	flags.StringVar(&config.DatabaseURL, "database-url", os.Getenv("LEAT_DATABASE_URL"), "an existing PostgreSQL 15 or newer instead (LEAT_DATABASE_URL)")
	flags.StringVar(&config.DirectURL, "direct-url", os.Getenv("LEAT_DIRECT_URL"), "the same database without a transaction pooler, for migrations, replication and LISTEN (LEAT_DIRECT_URL)")
	flags.StringVar(&config.Tail, "tail", env("LEAT_TAIL", tailAuto), "how to hear of commits: wal (the write-ahead log), notify (LISTEN and polling), "+
		"or auto: wal while streams are read, where the server allows it (LEAT_TAIL)")
	flags.StringVar(&config.Decoder, "decoder", env("LEAT_DECODER", replication.PgOutput), "output plugin for the write-ahead log: pgoutput or wal2json (LEAT_DECODER)")
	flags.BoolVar(&config.Projections, "projections", env("LEAT_PROJECTIONS", "true") == "true", "keep statistics and the other asynchronous projections; "+
		"one broker of a database is enough (LEAT_PROJECTIONS)")
	origins := flags.String("allow-origin", os.Getenv("LEAT_ALLOW_ORIGIN"), "origins whose pages may subscribe and consume, as "+
		"https://shop.example or http://localhost:*, with commas between; default: the broker's own host (LEAT_ALLOW_ORIGIN)")
	durable := flags.Bool("durable-views", false, "keep the queue views through a crash of PostgreSQL, for more WAL, "+
		"instead of rebuilding them; it stays so until --durable-views=false")
	seal := flags.String("seal", env("LEAT_SEAL", "0"), "seal the log: let no event be older than this, such as 1m, without a digest that covers it; 0 makes none (LEAT_SEAL)")
	retention := flags.String("log-retention", env("LEAT_LOG_RETENTION", "0"), "how long the log keeps events at least, such as 2160h; whole partitions leave it "+
		"when nothing points into them, as leat log show says; 0 is for ever (LEAT_LOG_RETENTION)")
	flags.BoolVar(&config.Archived, "log-retention-archived", os.Getenv("LEAT_LOG_RETENTION_ARCHIVED") == "true",
		"with --log-retention: keep what leat archive has not written to an archive (LEAT_LOG_RETENTION_ARCHIVED=true)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config.Durable = given(cmd, "durable-views", durable)
		if err := checkTail(config.Tail, config.Decoder); err != nil {
			return wrongUsage(cmd, "%v", err)
		}
		var err error
		if config.Seal, err = parseAge(*seal); err != nil {
			return wrongUsage(cmd, "--seal: %v", err)
		}
		if config.Retention, err = parseAge(*retention); err != nil {
			return wrongUsage(cmd, "--log-retention: %v", err)
		}
		if config.Origins, err = ws.ParseOrigins(splitList(*origins)); err != nil {
			return wrongUsage(cmd, "--allow-origin: %v", err)
		}
		return serve(cmd.Context(), config, newLogger())
	}
	return cmd
}

// parseAge reads a duration that may be 0.
func parseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if err != nil || age < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 1m or 720h", text)
	}
	return age, nil
}

// splitList splits what has commas between.
func splitList(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// serve runs the broker until ctx ends, then stops in the order that loses nothing.
func serve(ctx context.Context, config serveConfig, logger *slog.Logger) error {
	if err := loopbackOnly(config.Listen); err != nil {
		return err
	}
	// The address first: a second broker on it should not start a database.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: another broker, or another program, does already: stop it, or choose with --listen", config.Listen)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", config.Listen, err)
	}
	defer func() { _ = listener.Close() }() // closed already after a graceful stop

	if config.DatabaseURL != "" {
		return serveOn(ctx, listener, config, logger)
	}
	data, err := filepath.Abs(config.Data)
	if err != nil {
		return fmt.Errorf("resolve data folder: %w", err)
	}
	server, err := pgserver.Start(ctx, pgserver.Config{DataDir: data, Logger: logger})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		if err := server.Stop(stopping); err != nil {
			logger.Error("stop PostgreSQL", "error", err)
		}
	}()
	logger.Info("private PostgreSQL started", "version", server.Version(), "data", data)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var group errgroup.Group
	group.Go(func() error { return server.Run(watching) })
	config.DatabaseURL, config.DirectURL = server.URL(), ""
	err = serveOn(ctx, listener, config, logger)
	stopWatching()
	return errors.Join(err, group.Wait())
}

// serveOn runs the broker on the server behind the database URL.
func serveOn(ctx context.Context, listener net.Listener, config serveConfig, logger *slog.Logger) error {
	url, directURL := config.DatabaseURL, config.DirectURL
	if directURL == "" {
		directURL = url
	}
	direct, err := open(ctx, directURL, logger)
	if err != nil {
		return err
	}
	pool := direct
	if directURL != url {
		direct.Close()
		if pool, err = connect(ctx, url); err != nil {
			return err
		}
	}
	defer pool.Close()
	b := newBroker(pool, directURL, config, logger)
	if err := b.prepare(ctx, config.Durable); err != nil {
		return err
	}
	return b.run(ctx, listener)
}

// broker is every part of a running broker, wired.
type broker struct {
	logger    *slog.Logger
	store     *eventstore.Store
	sealer    *eventstore.Sealer
	retention *eventstore.Retention
	head      *eventstore.Head
	views     *projections.Views
	commands  *commands.Broker
	hub       *replication.Hub
	tail      *replication.Tail
	registry  *replication.Registry
	announcer *replication.Announcer
	api       *httpapi.Handler
	points    *replication.Points
	async     *async.Service
	server    *http.Server
}

func newBroker(pool *pgxpool.Pool, directURL string, config serveConfig, logger *slog.Logger) *broker {
	b := &broker{
		logger: logger,
		store:  eventstore.New(pool),
		views:  projections.New(pool, logger),
	}
	b.store.Logger = logger
	b.sealer = &eventstore.Sealer{Store: b.store, Interval: config.Seal}
	b.retention = &eventstore.Retention{Store: b.store, Age: config.Retention, Sealed: config.Seal > 0, Archived: config.Archived}
	b.head = eventstore.NewHead(b.store)
	b.commands = commands.New(commands.Config{
		Pool: pool, Logger: logger, Announce: b.announce, Done: b.done,
		Tails: func() bool { return b.tail.State().Mode == replication.ModeWAL },
	})
	b.async = async.New(async.Config{Pool: pool, Logger: logger, Off: !config.Projections})
	listener := &replication.Listener{URL: directURL, Logger: logger, Wake: b.wake}
	id := rand.Text()
	b.points = replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: logger, Broker: id})
	b.hub = replication.NewHub(replication.HubConfig{Pool: pool, Logger: logger, Points: b.points})
	wanted := b.hub.Reading
	if config.Tail == tailWAL {
		wanted = nil // always
	}
	b.tail = replication.NewTail(replication.TailConfig{
		URL: directURL, Pool: pool, Decoder: config.Decoder, Off: config.Tail == tailNotify,
		Wanted: wanted, Sink: b.hub, Wake: b.hear, Fallback: listener.Run, Logger: logger,
	})
	b.registry = replication.NewRegistry(pool, id, b.tail, logger)
	b.announcer = replication.NewAnnouncer(pool, b.registry, logger)
	views := viewsAPI{b.views}
	b.api = httpapi.New(httpapi.Config{
		Commands:    b.commands,
		Queries:     queries.New(pool),
		Points:      b.points,
		Projections: views,
		Async:       b.async,
		Log:         logAPI{b.store, b.retention},
		Readiness:   readiness{views: views, tail: b.tail, required: config.Tail == tailWAL},
		Head:        b.head,
		Tail:        tailAPI(b.tail),
		Streams:     streamsAPI{hub: b.hub},
		Origins:     config.Origins,
		Logger:      logger,
		Version:     version,
		DatabaseURL: withoutPassword(directURL),
	})
	b.server = &http.Server{
		Handler:           b.api,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return b
}

// announce tells of channels that have new messages through this broker; see
// commands.Config.
func (b *broker) announce(channels []eventstore.ChannelID, logged bool) {
	b.hub.Poke(channels...)
	b.announcer.Announce(channels, logged)
}

// hear tells of queues that have new messages, by the write-ahead log.
func (b *broker) hear(channels ...eventstore.ChannelID) {
	b.commands.Wake(channels...)
	b.done()
}

// done tells those who follow the log that something was appended.
func (b *broker) done() {
	b.head.Poke()
	b.async.Wake()
}

// wake tells of channels that have new messages; none means any.
func (b *broker) wake(channels ...eventstore.ChannelID) {
	b.hear(channels...)
	b.hub.Poke(channels...)
}

// run serves until ctx ends, then finishes what is in flight, and only then ends
// the parts that this needs.
func (b *broker) run(ctx context.Context, listener net.Listener) error {
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopParts()
	group, failed := errgroup.WithContext(parts)
	group.Go(func() error { return b.store.Run(failed) })
	group.Go(func() error { return b.sealer.Run(failed) })
	group.Go(func() error { return b.retention.Run(failed) })
	group.Go(func() error { return b.head.Run(failed) })
	group.Go(func() error { return b.views.Run(failed) })
	group.Go(func() error { return b.announcer.Run(failed) })
	group.Go(func() error { return b.tail.Run(failed) })
	group.Go(func() error { return b.registry.Run(failed) })
	group.Go(func() error { return b.hub.Run(failed) })
	group.Go(func() error { return b.points.Run(failed) })
	group.Go(func() error { return b.async.Run(failed) })

	// Polls that wait end with the commands, so that the HTTP server can drain.
	// Before that, push consumers give back what they hold.
	working, stopWorking := context.WithCancel(failed)
	defer stopWorking()
	group.Go(func() error { return b.commands.Run(working) })
	group.Go(func() error {
		if err := b.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	b.logger.Info("leat is serving", "url", "http://"+listener.Addr().String(), "version", version)

	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	b.logger.Info("stopping")
	stopping, cancel := context.WithTimeout(parts, stopWithin)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- b.server.Shutdown(stopping) }() // no new connections from here on
	b.endSessions(stopping)
	stopWorking()
	err := <-drained
	stopParts()
	err = errors.Join(err, group.Wait())
	if err == nil {
		b.checkpoint(parts)
	}
	return err
}

// endSessions closes what would not end by itself, and cuts off those who do not
// answer in half the time that there is.
func (b *broker) endSessions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopWithin/2)
	defer cancel()
	if err := b.api.Shutdown(ctx); err != nil {
		b.logger.Info("connections were cut off that did not close in time", "error", err)
	}
}

// prepare does what comes before the first request.
func (b *broker) prepare(ctx context.Context, durable *bool) error {
	if durable != nil {
		began := time.Now()
		changed, err := b.views.SetDurable(ctx, *durable)
		if err != nil {
			return err
		}
		if changed {
			b.logger.Info("queue views written anew", "durable", *durable, "took", time.Since(began).Round(time.Millisecond))
		}
	}
	// An append that comes before the first partitions is in their way. If they
	// have to wait for somebody's, the store tries again while it runs.
	err := b.store.MakePartitions(ctx)
	if err != nil && !errors.Is(eventstore.FromPg(err), &eventstore.Error{Code: eventstore.Busy}) {
		return fmt.Errorf("make partitions of the log: %w", err)
	}
	err = b.store.NoticeRestore(ctx, true)
	if errors.Is(err, &eventstore.Error{Code: eventstore.Busy}) {
		return nil // the store tries again
	}
	return err
}

// checkpoint spares the next start a long rebuild, should it need one.
func (b *broker) checkpoint(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointWithin)
	defer cancel()
	position, err := b.views.Checkpoint(ctx)
	switch {
	case errors.Is(eventstore.FromPg(err), &eventstore.Error{Code: eventstore.ViewsRebuilding}):
		// Lost, and not rebuilt yet: there is nothing to copy.
	case err != nil:
		b.logger.Warn("checkpoint at the end", "error", err)
	case position != nil:
		b.logger.Info("checkpoint written", "position", *position)
	}
}

// loopbackOnly refuses addresses that others can reach: there is no access
// control yet.
func loopbackOnly(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("parse listen address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("refuse to listen on %s: without users and tokens Leat listens on loopback only", address)
	}
	return nil
}
