package commands_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/commands"
	"leat/eventstore"
)

// G7: many writers, of which some roll back, and all dawdle: offsets have no gap,
// and whoever looks sees a beginning of the stream, which only grows: that is the
// order of the commits.
func TestG7OffsetsInCommitOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := serve(t, b.pool, commands.Config{})
	s := b.stream("s", commands.PolicyPatch{})
	b.exchange("x", commands.Fanout)
	b.link("x", "s", commands.Match{})
	const writers = 100

	var (
		mu        sync.Mutex
		committed = map[string]bool{}
	)
	write := func(i int) error {
		payload := strings.Repeat("x", i+1)
		switch i % 4 {
		case 0: // through a broker
			_, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", payload)}})
			if err != nil {
				return err
			}
		case 1: // through another one, by an exchange
			_, err := other.Publish(ctx, commands.PublishRequest{Channel: "x", Messages: []commands.Message{message("", payload)}})
			if err != nil {
				return err
			}
		default: // in a transaction of one's own
			tx, err := b.pool.Begin(ctx)
			if err != nil {
				return err
			}
			channel := []string{"s", "x"}[rand.IntN(2)]
			if _, err := tx.Exec(ctx, `select pg_sleep(random() * 0.01), leat.publish($1, $2), pg_sleep(random() * 0.01)`, channel, []byte(payload)); err != nil {
				return err
			}
			if i%4 == 2 {
				return tx.Rollback(ctx)
			}
			if err := tx.Commit(ctx); err != nil {
				return err
			}
		}
		mu.Lock()
		committed[payload] = true
		mu.Unlock()
		return nil
	}

	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- b.watchGrow(watching, s.ID) }()
	var group errgroup.Group
	for i := range writers {
		group.Go(func() error { return write(i) })
	}
	require.NoError(t, group.Wait())
	stop()
	require.NoError(t, <-watched)

	var payloads []string
	for i, text := range b.streamed("s") {
		offset, payload, _ := strings.Cut(text, " ")
		require.Equal(t, eventstore.Offset(i).String(), offset)
		payloads = append(payloads, strings.TrimSpace(payload))
	}
	require.Len(t, payloads, len(committed))
	for _, payload := range payloads {
		require.True(t, committed[payload])
	}
	slices.Sort(payloads)
	require.Equal(t, payloads, slices.Compact(slices.Clone(payloads)))
	b.verify()
}

// watchGrow looks at a stream again and again: what one look shows is how the next
// one begins, and the head tells the same.
func (b broker) watchGrow(ctx context.Context, channel eventstore.ChannelID) error {
	var before []eventstore.MessageID
	for ctx.Err() == nil {
		var (
			now []eventstore.MessageID
			end int
		)
		err := b.pool.QueryRow(context.WithoutCancel(ctx), `
			select coalesce((select array_agg(m.message_id order by m.stream_offset) from leat.stream_messages($1, 0, 100000) m), '{}'),
				leat.stream_end($1)`, channel).Scan(&now, &end)
		if err != nil {
			return err
		}
		if len(now) != end || len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			b.t.Errorf("after %v came %v, and the end is %d", before, now, end)
		}
		before = now
	}
	return nil
}

// An old snapshot gives no offset: it fails as a serialization does, and what others
// published stays.
func TestG7RepeatableRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stream("s", commands.PolicyPatch{})
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		next, _ := b.head("s")
		tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `select count(*) from leat.channels`)
		require.NoError(t, err)
		b.publishTexts("s", "", "first")
		_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "late")}})
		require.Equal(t, eventstore.Busy, refusal(t, err).Code)
		require.NoError(t, tx.Rollback(ctx))

		tx, err = b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		res, err := b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "in time")}})
		require.NoError(t, err)
		require.Equal(t, []eventstore.Offset{next + 1}, offsets(res))
		require.NoError(t, tx.Commit(ctx))
	}
	require.Equal(t, []string{"0 first ", "1 in time ", "2 first ", "3 in time "}, b.streamed("s"))
	b.verify()
}

// A snapshot that is held keeps all versions of a stream's head, and publishing
// costs the same: the look for the greatest offset finds it at once.
func TestF40HeldHorizonOfAStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stop() // a sweeper would read too
	b.Broker = commands.New(commands.Config{Pool: b.pool})
	b.stream("s", commands.PolicyPatch{})
	held, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Rollback(ctx)) }()
	_, err = held.Exec(ctx, `select count(*) from leat.stream_heads`)
	require.NoError(t, err)

	// A transaction each, so that each leaves a version behind.
	const publishes = 5000
	_, err = b.pool.Exec(ctx, `do $$ begin
		for i in 1..5000 loop
			perform leat.publish('s', 'x');
			commit;
		end loop;
	end $$`)
	require.NoError(t, err)
	next, _ := b.head("s")
	require.EqualValues(t, publishes, next)
	before := b.indexReads()
	b.publishTexts("s", "", "y")
	require.Less(t, b.indexReads()-before, int64(200))
}
