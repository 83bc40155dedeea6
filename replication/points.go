package replication

import (
	"context"
	"crypto/rand"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// MaxPartitions is how many members can share a stream.
const MaxPartitions = 64

// PointsConfig is what Points is made of. Everything without a default is needed.
type PointsConfig struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger // default slog.Default()
	// Broker is the id of this broker, as in leat.brokers. Default: a random text.
	Broker string
}

// Points changes the replication points of streams, and knows who reads with them
// here.
type Points struct {
	pool    *pgxpool.Pool
	logger  *slog.Logger
	broker  string
	commits committer

	mu      sync.Mutex
	members map[*membership]struct{}
	leaving []*membership
	wake    chan struct{}
}

// NewPoints makes the points of a database. Run looks after those who read with
// them.
func NewPoints(cfg PointsConfig) *Points {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Broker == "" {
		cfg.Broker = rand.Text()
	}
	return &Points{
		pool: cfg.Pool, logger: cfg.Logger, broker: cfg.Broker,
		commits: committer{pool: cfg.Pool, logger: cfg.Logger},
		members: map[*membership]struct{}{},
		wake:    make(chan struct{}, 1),
	}
}

const declarePointSQL = `-- replication.declarePoint
select d.created
from leat.declare_point($1, $2, nullif($3, 0), $4, $5, $6, nullif($7::bigint, 0), nullif($8, '')) d`

// Declare makes a point, or finds that it exists, wherever it is now; partitions 0
// is any, and 1 for a new one.
func (p *Points) Declare(
	ctx context.Context, actor, stream, point string, partitions int, start eventstore.Start,
) (created bool, err error) {
	if err := checkPoint(actor, stream, point); err != nil {
		return false, err
	}
	if partitions < 0 || partitions > MaxPartitions {
		return false, invalid("partitions", "must be from 1 to %d", MaxPartitions)
	}
	at, err := startArgs(start)
	if err != nil {
		return false, err
	}
	return queryOne[bool](ctx, p.pool, declarePointSQL, append([]any{stream, point, partitions}, append(at, actor)...)...)
}

const findStreamSQL = `-- replication.findStream
select f.channel_id, f.epoch
from leat.find_stream($1, false) f`

// streamID is what a name stands for now.
type streamID struct {
	Channel eventstore.ChannelID
	Epoch   eventstore.Position
}

// Commit says that everything up to and with the position was processed, in all
// partitions, whoever reads with the point. The same again is fine; lower is
// commit_behind, and an offset that is not there yet is offset_ahead. It returns
// after the commit of the database, which many callers share.
func (p *Points) Commit(ctx context.Context, actor, stream, point string, last eventstore.StreamPosition) error {
	if err := checkPoint(actor, stream, point); err != nil {
		return err
	}
	if last.Offset < 0 {
		return invalid("offset", "must not be negative")
	}
	id, err := queryStruct[streamID](ctx, p.pool, findStreamSQL, stream)
	if err != nil {
		return err
	}
	return tryAhead(ctx, func() error {
		return p.commits.submit(ctx, &commit{
			channel: id.Channel, stream: stream, point: point, epoch: last.Epoch, actor: actor,
			lasts: map[int]eventstore.Offset{everyPartition: last.Offset},
		})
	})
}

const resetPointSQL = `-- replication.resetPoint
select leat.reset_point($1, $2, $3, $4, $5, nullif($6::bigint, 0), nullif($7, ''))`

// Reset moves a point anywhere, back or ahead. Who reads with it ends with
// point_moved, and begins there when it comes again.
func (p *Points) Reset(ctx context.Context, actor, stream, point string, start eventstore.Start) error {
	if err := checkPoint(actor, stream, point); err != nil {
		return err
	}
	at, err := startArgs(start)
	if err != nil {
		return err
	}
	return p.change(ctx, resetPointSQL, append([]any{stream, point}, append(at, actor)...)...)
}

const deletePointSQL = `-- replication.deletePoint
select leat.delete_point($1, $2, nullif($3, ''))`

// Delete deletes a point. Who reads with it ends with point_not_found.
func (p *Points) Delete(ctx context.Context, actor, stream, point string) error {
	if err := checkPoint(actor, stream, point); err != nil {
		return err
	}
	return p.change(ctx, deletePointSQL, stream, point, actor)
}

// change runs a statement that answers nothing, and has the readers told.
func (p *Points) change(ctx context.Context, sql string, args ...any) error {
	if _, err := p.pool.Exec(ctx, sql, args...); err != nil {
		return eventstore.FromPg(err)
	}
	p.poke()
	return nil
}

// startKinds are the kinds of leat.find_start.
var startKinds = map[eventstore.StartKind]string{
	eventstore.StartLatest: "latest", eventstore.StartEarliest: "earliest",
	eventstore.StartOffset: "offset", eventstore.StartTime: "time",
}

// startArgs are the arguments of leat.find_start: kind, offset, time and epoch.
func startArgs(s eventstore.Start) ([]any, error) {
	kind, ok := startKinds[s.Kind]
	if !ok {
		return nil, invalid("from", "must be earliest, latest, an offset or a time")
	}
	if s.Offset < 0 {
		return nil, invalid("from", "must not be negative")
	}
	if s.Epoch < 0 {
		return nil, invalid("epoch", "must not be negative")
	}
	var at *time.Time
	if s.Kind == eventstore.StartTime {
		if y := s.Time.Year(); y < 1 || y > 9999 {
			return nil, invalid("from", "must be a time from year 1 to 9999")
		}
		at = &s.Time
	}
	return []any{kind, s.Offset, at, s.Epoch}, nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)

const nameRule = "must be 1 to 255 letters, digits, dots, underscores and hyphens, the first one a letter or digit"

func checkPoint(actor, stream, point string) error {
	if !validName.MatchString(stream) {
		return eventstore.NewError(eventstore.ChannelNotFound, "There is no stream %.300q.", stream)
	}
	if !validName.MatchString(point) {
		return invalid("point", nameRule)
	}
	return checkLabel("actor", actor)
}

func checkLabel(field, s string) error {
	if !eventstore.IsLabel(s) {
		return invalid(field, eventstore.LabelRule)
	}
	return nil
}

func invalid(field, format string, args ...any) *eventstore.Error {
	e := eventstore.NewError(eventstore.InvalidField, format, args...)
	e.Field = field
	return e
}

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func queryOne[T any](ctx context.Context, db querier, sql string, args ...any) (T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, eventstore.FromPg(err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	return value, eventstore.FromPg(err)
}

func queryStruct[T any](ctx context.Context, db querier, sql string, args ...any) (T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, eventstore.FromPg(err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
	return value, eventstore.FromPg(err)
}

func queryStructs[T any](ctx context.Context, db querier, sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, eventstore.FromPg(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	return list, eventstore.FromPg(err)
}
