package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// How often the keeper looks, and how often it tries a checkpoint. A checkpoint
// is written only when the log has grown enough to pay for it.
const (
	lookEvery       = time.Second
	checkpointEvery = time.Minute
)

// Views keeps the queue views of one database whole.
type Views struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
}

// New returns the views of the pool's database. The pool may be a transaction
// pooler's.
func New(pool *pgxpool.Pool, logger *slog.Logger) *Views {
	return &Views{pool: pool, logger: logger}
}

// Difference is a message whose live view is not what the log says, or a circuit, or,
// with MessageID 0, a stream or a replication point. A nil side does not have it at
// all.
type Difference struct {
	MessageID eventstore.MessageID
	ChannelID eventstore.ChannelID
	Log       json.RawMessage
	View      json.RawMessage
}

const aliveSQL = `-- projections.alive
select leat.views_alive()`

// Alive tells whether the views are whole. They are not after a crash of
// PostgreSQL, until a broker has rebuilt them.
func (v *Views) Alive(ctx context.Context) (bool, error) {
	var alive bool
	err := v.pool.QueryRow(ctx, aliveSQL).Scan(&alive)
	return alive, err
}

const verifySQL = `-- projections.verify
select message_id, channel_id, log, view
from leat.verify_views($1)
order by message_id
limit $2`

// Verify compares the log with the live views in one snapshot and returns at
// most limit messages that differ, by id. It reads the whole log, or with
// fromCheckpoint what came after the last checkpoint.
func (v *Views) Verify(ctx context.Context, fromCheckpoint bool, limit int) ([]Difference, error) {
	rows, err := v.pool.Query(ctx, verifySQL, fromCheckpoint, limit)
	if err != nil {
		return nil, fmt.Errorf("verify queue views: %w", err)
	}
	differences, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Difference])
	if err != nil {
		return nil, fmt.Errorf("verify queue views: %w", err)
	}
	return differences, nil
}

const (
	restoreStreamsSQL = `-- projections.restoreStreams
select leat.restore_streams()`
	loseSQL = `-- projections.lose
select leat.lose_views()`
	rebuildSQL = `-- projections.rebuild
select leat.rebuild_views()`
	heldSQL = `-- projections.held
select coalesce(sum(cardinality(r.ids)), 0)
from leat.queue_runs r`
)

// Rebuild gives up the live views and makes them anew from the log; it returns
// how many messages they hold. Streams and replication points, which no crash loses,
// are restored where they differ from the log. Polls and settlements wait meanwhile. If it is
// killed half-way, the next broker goes on as after a crash.
func (v *Views) Rebuild(ctx context.Context) (int64, error) {
	alive, err := v.Alive(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at queue views: %w", err)
	}
	if alive {
		if err := v.lose(ctx); err != nil {
			return 0, fmt.Errorf("give up queue views: %w", err)
		}
	}
	messages, err := v.restore(ctx)
	if err != nil {
		return 0, err
	}
	if err := v.restoreStreams(ctx); err != nil {
		return 0, fmt.Errorf("restore streams: %w", err)
	}
	return messages, nil
}

// restoreStreams waits for open publishes to streams only if there is something to
// restore.
func (v *Views) restoreStreams(ctx context.Context) error {
	return pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
			return err
		}
		var wrong int64
		if err := tx.QueryRow(ctx, restoreStreamsSQL).Scan(&wrong); err != nil {
			return err
		}
		if wrong > 0 {
			v.logger.Warn("streams and replication points were not what the log says, and are restored", "differences", wrong)
		}
		return nil
	})
}

func (v *Views) lose(ctx context.Context) error {
	return pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, loseSQL)
		return err
	})
}

// restore fills views that are lost, and answers how many messages they hold. One
// broker does it; the others, and a rebuild whose views a keeper has filled meanwhile,
// find it done.
func (v *Views) restore(ctx context.Context) (int64, error) {
	var messages int64
	err := pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(1279607044, 2)"); err != nil {
			return err
		}
		var alive bool
		if err := tx.QueryRow(ctx, aliveSQL).Scan(&alive); err != nil {
			return err
		}
		sql := rebuildSQL
		if alive {
			sql = heldSQL
		}
		return tx.QueryRow(ctx, sql).Scan(&messages)
	})
	if err != nil {
		return 0, fmt.Errorf("rebuild queue views: %w", err)
	}
	return messages, nil
}

const checkpointSQL = `-- projections.checkpoint
select leat.checkpoint()`

// Checkpoint copies the views to where a rebuild can start from and returns the
// copy's position; nil when the log has not grown enough to pay for it.
func (v *Views) Checkpoint(ctx context.Context) (*eventstore.Position, error) {
	var position *eventstore.Position
	if err := v.pool.QueryRow(ctx, checkpointSQL).Scan(&position); err != nil {
		return nil, fmt.Errorf("checkpoint queue views: %w", err)
	}
	return position, nil
}

// Run rebuilds the views whenever they are lost, and writes checkpoints, until
// ctx ends. It outlives the database being away.
func (v *Views) Run(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	checkpointed := time.Now()
	told := ""
	for {
		err := v.keep(ctx, &checkpointed)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			told = ""
		case err.Error() != told: // another fault than at the last look
			told = err.Error()
			v.logger.Warn("keep queue views", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

const gapsSQL = `-- projections.gaps
select coalesce(string_agg(format('%s to %s', g.low, g.high), ', '), '')
from leat.log_gaps() g`

// gaps says what the log has lost, of which no view can be made.
func (v *Views) gaps(ctx context.Context) error {
	var gaps string
	err := v.pool.QueryRow(ctx, gapsSQL).Scan(&gaps)
	if err == nil && gaps != "" {
		v.logger.Error("somebody has dropped partitions of the log: messages that were there are lost, unless a checkpoint has them", "positions", gaps)
	}
	return err
}

func (v *Views) keep(ctx context.Context, checkpointed *time.Time) error {
	alive, err := v.Alive(ctx)
	if err != nil {
		return err
	}
	if !alive {
		began := time.Now()
		v.logger.Warn("queue views are lost, rebuilding them from the log")
		messages, err := v.restore(ctx)
		if err != nil {
			return err
		}
		v.logger.Info("queue views rebuilt", "messages", messages, "took", time.Since(began).Round(time.Millisecond))
		if err := v.gaps(ctx); err != nil {
			return err
		}
	}
	if time.Since(*checkpointed) < checkpointEvery {
		return nil
	}
	*checkpointed = time.Now()
	_, err = v.Checkpoint(ctx)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "LE001" {
		return nil // lost between the two looks: the next one rebuilds
	}
	return err
}
