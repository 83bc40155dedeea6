package eventstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	partitionsEvery = 10 * time.Second
	// Attaching a partition waits for readers of the default one, and whoever
	// comes after waits behind it: not for long.
	partitionsLockTimeout = `set local lock_timeout = '2s'`
)

const makePartitionsSQL = `-- eventstore.makePartitions
select leat.make_partitions()`

// Run keeps partitions of the log ahead of need, and looks whether the database was
// exchanged or has lost a part of the log, until the context ends, and then returns nil. The first round decides: its error is returned, so that a
// wrong database is noticed at the start. Later errors are logged and the round
// is tried again; while it fails, the log grows in its default partition.
func (s *Store) Run(ctx context.Context) error {
	if err := s.MakePartitions(ctx); err != nil && ctx.Err() == nil && !passes(err) {
		return fmt.Errorf("make partitions: %w", err)
	}
	if err := s.TrimGaps(ctx); err != nil && ctx.Err() == nil && !passes(err) {
		return err
	}
	tick := time.NewTicker(partitionsEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := errors.Join(s.MakePartitions(ctx), s.NoticeRestore(ctx, false), s.TrimGaps(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			s.logger().Warn("look after the log: will be tried again", "error", err)
		case err == nil && failing:
			s.logger().Info("the log is looked after again")
		}
		failing = err != nil
	}
}

// passes reports whether an error may be gone at the next round.
func passes(err error) bool {
	return FromPg(err) != err //nolint:errorlint // mapped or not
}

// MakePartitions makes what is missing now. Several brokers may call it at once.
func (s *Store) MakePartitions(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, partitionsLockTimeout); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, makePartitionsSQL)
		return err
	})
}

func (s *Store) logger() *slog.Logger {
	if s.Logger != nil {
		return s.Logger
	}
	return slog.Default()
}
