package pubsub_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/api/pubsub"
	"leat/migrations/dbtest"
)

// However often a message comes, and whatever happens to its handler, it takes
// effect once.
func TestInboxExactlyOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	leat := newBroker(t, pool).client(t)
	_, err := pool.Exec(t.Context(), "create schema shop; create table shop.effects (message text)")
	require.NoError(t, err)
	inbox, err := pubsub.NewInbox(pool, pubsub.InboxConfig{Table: "shop.inbox", Consumer: "billing"})
	require.NoError(t, err)
	require.NoError(t, inbox.Create(t.Context()))
	require.NoError(t, inbox.Create(t.Context()))

	const count = 60
	handle := inbox.Handler(func(msg *message.Message, tx pgx.Tx) error {
		if _, err := tx.Exec(msg.Context(), "insert into shop.effects values ($1)", msg.UUID); err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			return errors.New("undone")
		}
		return nil
	})
	pub := publisher(t, leat, pubsub.Topics{})
	for n := range count {
		msg := message.NewMessage(fmt.Sprint(n), nil)
		require.NoError(t, pub.Publish("q", msg, msg)) // twice
	}
	messages := subscribe(t, leat, "q", pubsub.SubscriberConfig{Concurrency: 8})
	var workers sync.WaitGroup
	acked := make(chan struct{}, 2*count)
	for range 8 {
		workers.Go(func() {
			for msg := range messages {
				if handle(msg) != nil || rand.IntN(4) == 0 { // or the ack is lost
					msg.Nack()
					continue
				}
				msg.Ack()
				acked <- struct{}{}
			}
		})
	}
	for range 2 * count {
		select {
		case <-acked:
		case <-time.After(patience):
			t.Fatal("messages are missing")
		}
	}
	var rows, distinct int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*), count(distinct message) from shop.effects").Scan(&rows, &distinct))
	require.Equal(t, count, rows)
	require.Equal(t, count, distinct)

	pruned, err := inbox.Prune(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, pruned)
	pruned, err = inbox.Prune(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, count, pruned)
}

// Two consumers share a table; a message without a UUID has Leat's id.
func TestInboxIDs(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	leat := newBroker(t, pool).client(t)
	pub, messages := publisher(t, leat, pubsub.Topics{}), subscribe(t, leat, "q", pubsub.SubscriberConfig{})
	require.NoError(t, pub.Publish("q", message.NewMessage("", nil)))
	msg := next(t, messages)
	for _, consumer := range []string{"a", "b"} {
		inbox, err := pubsub.NewInbox(pool, pubsub.InboxConfig{Consumer: consumer})
		require.NoError(t, err)
		require.NoError(t, inbox.Create(t.Context()))
		effects := 0
		handle := inbox.Handler(func(*message.Message, pgx.Tx) error {
			effects++
			return nil
		})
		require.NoError(t, handle(msg))
		require.NoError(t, handle(msg))
		require.Equal(t, 1, effects)
		require.ErrorContains(t, handle(message.NewMessage("", nil)), "neither a UUID")
	}
	_, err := pubsub.NewInbox(pool, pubsub.InboxConfig{})
	require.Error(t, err)
	_, err = pubsub.NewInbox(nil, pubsub.InboxConfig{Consumer: "a"})
	require.Error(t, err)
}
