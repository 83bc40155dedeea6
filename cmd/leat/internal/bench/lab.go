package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/api/client"
	"leat/commands"
	"leat/eventstore"
)

// patience bounds the clearing up, which has to happen whatever the context says.
const patience = time.Minute

// lab is what a run works with.
type lab struct {
	cfg    Config
	admin  *pgxpool.Pool // on the database that Config.URL names
	meter  *meter
	server string // version of the server
	beds   []*bed // scratch databases, to be dropped
	main   *bed   // the one of most cases
	keys   []string
	epoch  time.Time // payloads count from here
	floors *floors
}

// bed is a scratch database, and the broker that runs on it.
type bed struct {
	name, url string
	node      *Node
	client    *client.Client
	stop      context.CancelFunc
	ended     chan error
}

// newLab knows what there is to do, and has nothing to do it with.
func newLab(cfg Config) *lab {
	return &lab{cfg: cfg, epoch: time.Now(), keys: numbered(cfg.Keys)}
}

// numbered are so many routing keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	return keys
}

func openLab(ctx context.Context, cfg Config) (l *lab, err error) {
	l = newLab(cfg)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close(ctx))
		}
	}()
	config, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return l, fmt.Errorf("parse database URL: %w", err)
	}
	config.MaxConns = 2
	if l.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return l, fmt.Errorf("connect to database: %w", err)
	}
	if err = l.admin.QueryRow(ctx, `select current_setting('server_version')`).Scan(&l.server); err != nil {
		return l, fmt.Errorf("connect to database: %w", err)
	}
	if l.meter, err = newMeter(ctx, l.admin); err != nil {
		return l, fmt.Errorf("find the server's processes: %w", err)
	}
	if l.main, err = l.newBed(ctx, Parts{}); err != nil {
		return l, err
	}
	l.floors, err = newFloors(ctx, l.main)
	return l, err
}

// close ends the brokers and drops the databases.
func (l *lab) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	errs := []error{l.floors.trim(ctx, 0)}
	for _, b := range l.beds {
		errs = append(errs, l.drop(ctx, b))
	}
	l.beds = nil
	if l.admin != nil {
		l.admin.Close()
	}
	return errors.Join(errs...)
}

// drop ends a broker and removes its database.
func (l *lab) drop(ctx context.Context, b *bed) error {
	err := b.close()
	_, dropErr := l.admin.Exec(ctx, "drop database if exists "+b.name+" with (force)")
	return errors.Join(err, dropErr)
}

// newBed makes a scratch database with a running broker.
func (l *lab) newBed(ctx context.Context, with Parts) (*bed, error) {
	b, err := l.newDatabase(ctx, with)
	if err != nil {
		return nil, err
	}
	if err := b.serve(ctx); err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	return b, l.warmUp(ctx, b)
}

// newDatabase makes a scratch database whose broker does nothing by itself.
func (l *lab) newDatabase(ctx context.Context, with Parts) (*bed, error) {
	b := &bed{name: "leat_bench_" + strings.ToLower(rand.Text()[:12])}
	var err error
	if b.url, err = inDatabase(l.cfg.URL, b.name); err != nil {
		return nil, err
	}
	l.beds = append(l.beds, b) // first, so that it is dropped also if this is interrupted
	if _, err := l.admin.Exec(ctx, "create database "+b.name+" template template0"); err != nil {
		return nil, fmt.Errorf("create scratch database: %w", err)
	}
	if b.node, err = l.cfg.Start(ctx, b.url, with); err != nil {
		return nil, err
	}
	// As a broker does before the first request: an append would be in their way.
	if err := eventstore.New(b.node.Pool).MakePartitions(ctx); err != nil {
		return nil, fmt.Errorf("make partitions: %w", err)
	}
	return b, nil
}

// inDatabase is a server's URL with another database.
func inDatabase(server, name string) (string, error) {
	address, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("parse database URL: %w", err)
	}
	address.Path = "/" + name
	config, err := pgx.ParseConfig(address.String())
	if err != nil {
		return "", fmt.Errorf("parse database URL: %w", err)
	}
	// Parameters may name one too, and win: nothing but scratch is to be touched.
	if config.Database != name {
		return "", fmt.Errorf("database URL: the database %s must be in its path, not in its parameters", config.Database)
	}
	return address.String(), nil
}

// serve runs the broker until the bed is closed.
func (b *bed) serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if b.client, err = client.New("http://"+listener.Addr().String(), client.Options{Client: actor}); err != nil {
		return errors.Join(err, listener.Close())
	}
	// It outlives the context: what is under way is to end in order.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop, b.ended = stop, make(chan error, 1)
	go func() { b.ended <- b.node.Run(running, listener) }()
	return nil
}

func (b *bed) close() (err error) {
	if b.client != nil {
		b.client.Close()
	}
	if b.stop != nil {
		b.stop()
		err = <-b.ended
	}
	if b.node != nil {
		b.node.Pool.Close()
	}
	return err
}

// driver is a way to the broker.
func (b *bed) driver(via string) driver {
	if via == ViaHTTP {
		return httpDriver{b.client}
	}
	return commandsDriver{b.node.Commands}
}

// warmUp opens the connections of the broker and fills their caches.
func (l *lab) warmUp(ctx context.Context, b *bed) error {
	queue, err := l.declare(ctx, b)
	if err != nil {
		return err
	}
	for _, via := range l.cfg.Via {
		const each = 16
		sent, err := l.produce(ctx, b.driver(via), queue, each, 1, newQuota(10*each, 0))
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := drain(ctx, brokerEnd{driver: b.driver(via), queue: queue, limit: 5}, each, sent); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return l.warmConnections(ctx, b, queue)
}

// warmConnections does on every connection of the broker what a sample does, as is
// done on those of the floors, and undoes it. The first call of a function in a
// session plans all its statements, which takes ten milliseconds or more, and so
// does the first one after a vacuum: in a short sample that is the whole p99.
func (l *lab) warmConnections(ctx context.Context, b *bed, queue string) error {
	// All are held until the last is warm, or the pool would hand out the same again.
	for range b.node.Pool.Config().MaxConns {
		conn, err := b.node.Pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		defer conn.Release()
		err = undone(ctx, conn.Conn(), func(ctx context.Context, tx pgx.Tx) error {
			return l.once(ctx, tx, b.node.Commands, queue)
		})
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

const sweepSQL = `-- bench.sweep
select from leat.sweep(null)`

// once takes a message the whole way, and sweeps, as brokers do by themselves.
func (l *lab) once(ctx context.Context, tx pgx.Tx, broker *commands.Broker, queue string) error {
	_, err := broker.PublishTx(ctx, tx, commands.PublishRequest{
		Channel: queue, Actor: actor, Messages: []commands.Message{{RoutingKey: l.keys[0], Payload: l.payload(0)}},
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	got, err := broker.PollTx(ctx, tx, commands.PollRequest{Queue: queue, Consumer: actor, Max: 1})
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if len(got) != 1 {
		return fmt.Errorf("%w: polled %d of 1", errCount, len(got))
	}
	_, err = broker.AckTx(ctx, tx, commands.SettleRequest{
		Queue: queue, Actor: actor, Receipts: []string{got[0].Receipt.String()},
	})
	if err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	if _, err := tx.Exec(ctx, sweepSQL); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// declare makes a queue for one sample.
func (l *lab) declare(ctx context.Context, b *bed) (string, error) {
	return declare(ctx, b, l.cfg.Mode)
}

func declare(ctx context.Context, b *bed, mode string) (queue string, err error) {
	queue = "bench-" + rand.Text()[:8]
	lease := 10 * time.Minute // longer than any sample: nothing is delivered twice
	_, _, err = b.node.Commands.DeclareChannel(ctx, actor, commands.ChannelSpec{
		Name: queue, Mode: mode, Policy: commands.PolicyPatch{Lease: &lease},
	})
	if err != nil {
		return "", fmt.Errorf("declare queue: %w", err)
	}
	return queue, nil
}

const settleSQL = `-- bench.settle
vacuum (analyze) leat.queue_runs, leat.lanes, leat.channels`

// settle leaves the queue tables as a broker at rest would have them.
func (b *bed) settle(ctx context.Context) error {
	if _, err := b.node.Pool.Exec(ctx, settleSQL); err != nil {
		return fmt.Errorf("vacuum queue views: %w", err)
	}
	return nil
}

const holdsSQL = `-- bench.holds
select coalesce(sum(cardinality(r.ids)), 0)
from leat.queue_runs r
join leat.channels c on c.id = r.channel_id
where c.name = $1`

// errCount says that messages are missing, or there twice.
var errCount = errors.New("wrong number of messages")

// expect checks how many messages a queue holds.
func (b *bed) expect(ctx context.Context, queue string, want int) error {
	var have int
	if err := b.node.Pool.QueryRow(ctx, holdsSQL, queue).Scan(&have); err != nil {
		return fmt.Errorf("count messages: %w", err)
	}
	if have != want {
		return fmt.Errorf("%w: the queue holds %d instead of %d", errCount, have, want)
	}
	return nil
}
