package replication_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

func TestListenerHears(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	heard := listen(t, address, 0)
	// What is no channel id wakes nobody, and breaks nothing.
	for _, payload := range []string{"", "hello", "1?", ",", "99999999999", "7", "1,x,2147483647"} {
		notify(t, pool, payload)
	}
	require.Equal(t, []eventstore.ChannelID{7}, heard.next(t))
	require.Equal(t, []eventstore.ChannelID{1, 2147483647}, heard.next(t))
}

// A connection that is silent proves itself: it is neither replaced nor deaf.
func TestListenerProves(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	heard := listen(t, address, time.Millisecond)
	require.Eventually(t, func() bool {
		var proving bool
		err := pool.QueryRow(ctx, `
			select exists (select from pg_stat_activity
			where application_name = 'leat listener' and datname = current_database() and query like '%pg_notify%')`).Scan(&proving)
		return err == nil && proving
	}, patience, 5*time.Millisecond)
	for id := range eventstore.ChannelID(50) {
		notify(t, pool, id.String())
		require.Equal(t, []eventstore.ChannelID{id}, heard.next(t), "every one in order, and no new connection between")
	}
}

func TestListenerRefusesBadURL(t *testing.T) {
	t.Parallel()
	l := replication.Listener{URL: "postgres://%zz", Logger: quiet}
	require.ErrorContains(t, l.Run(ctx), "parse listener URL")
}

// F4: a listener whose backend is killed listens again, and has everything
// looked at once, because it cannot know what it missed.
func TestF04ListenerKilled(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	heard := listen(t, address, 0)
	for range 3 {
		var killed bool
		require.NoError(t, pool.QueryRow(ctx, `
			select bool_and(pg_terminate_backend(pid)) from pg_stat_activity
			where application_name = 'leat listener' and datname = current_database()`).Scan(&killed))
		require.True(t, killed)
		heard.all(t)
		notify(t, pool, "7")
		require.Equal(t, []eventstore.ChannelID{7}, heard.next(t))
	}
}

// F4: a connection that dies without a word costs a waiting poll a second; the
// listener notices, and is heard again once the way is free.
func TestF04ListenerSilenced(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	way, address := newProxy(t, pool)
	broker := commands.New(commands.Config{Pool: pool, Logger: quiet})
	run(t, broker.Run)
	_, _, err := broker.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "q"})
	require.NoError(t, err)
	heard := make(wakes, 1000)
	run(t, (&replication.Listener{
		URL: address, Logger: quiet, ProveEvery: 100 * time.Millisecond,
		Wake: func(channels ...eventstore.ChannelID) {
			broker.Wake(channels...)
			heard <- channels
		},
	}).Run)
	heard.all(t)

	// receive publishes through SQL, so that only the listener could tell.
	receive := func() {
		t.Helper()
		got := make(chan []commands.Delivery, 1)
		waiting, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		go func() {
			deliveries, err := broker.Poll(waiting, commands.PollRequest{Queue: "q", Max: 1, Wait: patience})
			assert.NoError(t, err)
			got <- deliveries
		}()
		_, err := pool.Exec(ctx, `select leat.publish('q', 'x')`)
		require.NoError(t, err)
		require.Len(t, <-got, 1)
	}
	way.silence()
	receive()
	require.Empty(t, heard, "nothing can have been heard")
	way.speak()
	heard.all(t)
	receive()
	require.Len(t, heard.next(t), 1)
}

// A publish in an application's own transaction wakes a waiting poll when it
// commits, and not before.
func TestSQLPublishWakes(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	broker := commands.New(commands.Config{Pool: pool, Logger: quiet})
	run(t, broker.Run)
	channel, _, err := broker.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "q"})
	require.NoError(t, err)
	heard := listen(t, address, 0)

	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `select leat.publish('q', 'x')`)
	require.NoError(t, err)
	notify(t, pool, "999")
	require.Equal(t, []eventstore.ChannelID{999}, heard.next(t), "not before the commit")
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []eventstore.ChannelID{channel.ID}, heard.next(t))
	_, err = pool.Exec(ctx, `do $$ begin perform leat.publish('q', 'y'); raise exception 'no'; end $$`)
	require.Error(t, err)
	notify(t, pool, "999")
	require.Equal(t, []eventstore.ChannelID{999}, heard.next(t), "not after a rollback")
}

// What dies in a queue wakes who waits for its copy.
func TestDeadLetterCopiesWake(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	broker := commands.New(commands.Config{Pool: pool, Logger: quiet})
	run(t, broker.Run)
	target, _, err := broker.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "dead"})
	require.NoError(t, err)
	_, _, err = broker.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "q", Policy: commands.PolicyPatch{DeadLetterTo: new("dead")}})
	require.NoError(t, err)
	_, err = broker.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: make([]commands.Message, 1)})
	require.NoError(t, err)
	got, err := broker.Poll(ctx, commands.PollRequest{Queue: "q", Max: 1})
	require.NoError(t, err)
	heard := listen(t, address, 0)
	_, err = broker.Nack(ctx, commands.NackRequest{
		SettleRequest: commands.SettleRequest{Queue: "q", Receipts: []string{got[0].Receipt.String()}}, Action: commands.DeadLetterAction,
	})
	require.NoError(t, err)
	require.Equal(t, []eventstore.ChannelID{target.ID}, heard.next(t))
}

// A listener that cannot connect ends at once when it is told to.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	_, address := newProxy(t, dbtest.New(t))
	way, silent := newProxy(t, dbtest.New(t))
	way.silence()
	for _, url := range []string{address, silent, "postgres://127.0.0.1:1/x"} {
		ending, cancel := context.WithCancel(ctx)
		l := replication.Listener{URL: url, Logger: quiet, Wake: func(...eventstore.ChannelID) { cancel() }}
		time.AfterFunc(50*time.Millisecond, cancel)
		require.NoError(t, l.Run(ending))
		require.ErrorIs(t, ending.Err(), context.Canceled)
	}
}
