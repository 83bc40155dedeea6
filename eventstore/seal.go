package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// sealEvery is how often a sealer looks.
const sealEvery = 5 * time.Second

// Sealer seals the log: it appends log.sealed events, each of which holds a digest
// of what was appended since the one before. Any number may run on a database.
type Sealer struct {
	Store *Store
	// Interval is how old an event may be without a seal; much that is new is sealed
	// at once. 0 seals nothing.
	Interval time.Duration
}

// Run seals until the context ends, and outlives the database being away.
func (s *Sealer) Run(ctx context.Context) error {
	if s.Interval <= 0 {
		return nil
	}
	tick := time.NewTicker(min(sealEvery, s.Interval))
	defer tick.Stop()
	failing := false
	for {
		err := s.Store.SealAll(ctx, s.Interval)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			s.Store.logger().Warn("seal the log: will be tried again", "error", err)
		case err == nil && failing:
			s.Store.logger().Info("the log is sealed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// SealAll makes seals, as Seal does, until there is nothing to seal.
func (s *Store) SealAll(ctx context.Context, age time.Duration) error {
	for {
		seal, err := s.Seal(ctx, age)
		if err != nil || seal == nil {
			return err
		}
	}
}

const trySealSQL = `-- eventstore.trySeal
select pg_catalog.pg_try_advisory_xact_lock(1279607044, 6)`

const unsealedSQL = `-- eventstore.unsealed
select u.to_position,
       u.digest,
       u.settled,
       u.age
from leat.unsealed() u`

const appendSealSQL = `-- eventstore.appendSeal
select set_config('synchronous_commit', 'on', true),
       leat.append_log('log.sealed', 'leat', $1)`

// Seal appends one seal if there is much to seal, or something that is older than
// age; nil if there is not, or somebody else seals at the moment. A seal that is
// committed is durable, and so is everything that it covers.
func (s *Store) Seal(ctx context.Context, age time.Duration) (seal *Seal, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		seal, err = sealTx(ctx, tx, age)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("seal the log: %w", FromPg(err))
	}
	return seal, nil
}

func sealTx(ctx context.Context, tx pgx.Tx, age time.Duration) (*Seal, error) {
	var (
		ours     bool
		to, high Position
		previous *string
		oldest   *time.Duration
	)
	if err := tx.QueryRow(ctx, trySealSQL).Scan(&ours); err != nil || !ours {
		return nil, err
	}
	if err := tx.QueryRow(ctx, unsealedSQL).Scan(&to, &previous, &high, &oldest); err != nil {
		return nil, err
	}
	if oldest == nil || (*oldest < age && high-to < sealEvents) {
		return nil, nil
	}
	seal := &Seal{From: to + 1, Algorithm: sealAlgorithm}
	var err error
	if previous != nil {
		if seal.Previous, err = ParseDigest(*previous); err != nil {
			return nil, err
		}
	}
	if err := seal.read(ctx, tx, high); err != nil {
		return nil, err
	}
	data, err := json.Marshal(seal)
	if err != nil {
		return nil, err
	}
	var level string
	return seal, tx.QueryRow(ctx, appendSealSQL, string(data)).Scan(&level, &seal.Position)
}

// read makes the blocks of what lies from the seal's beginning up to a position, or
// of so much of it as one seal takes.
func (s *Seal) read(ctx context.Context, tx pgx.Tx, high Position) error {
	var b blocker
	for to := s.From - 1; to < high; {
		last := to
		err := readRange(ctx, tx, to, high, blockEvents, func(row [][]byte) (err error) {
			b.add(row)
			last, err = positionOf(row)
			return err
		})
		if err != nil {
			return err
		}
		s.Events += b.events
		if to = last; b.events < blockEvents {
			to = high
		}
		s.Blocks = append(s.Blocks, b.end(to))
		if s.To = to; s.Events >= sealEvents || b.bytes >= sealBytes {
			break
		}
	}
	s.Bytes = b.bytes
	s.Digest = s.digest()
	return nil
}

const lastSealSQL = `-- eventstore.lastSeal
select l.event,
       l.at,
       l.data
from leat.last_seal() l`

// LastSeal is the end of the chain, and when it was made; nil where nothing is
// sealed.
func (s *Store) LastSeal(ctx context.Context) (*Seal, time.Time, error) {
	var (
		event Position
		at    time.Time
		data  []byte
	)
	err := s.pool.QueryRow(ctx, lastSealSQL).Scan(&event, &at, &data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the last seal: %w", FromPg(err))
	}
	seal, err := parseSeal(data)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the last seal: %w", err)
	}
	seal.Position = event
	return &seal, at, nil
}
