package commands_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// Nothing overtakes a message that has to wait because somebody publishes under its
// key, or to its stream.
func TestRepublishWaitsForPublishers(t *testing.T) {
	t.Parallel()
	for _, target := range []string{commands.FIFO, commands.Stream} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("from", commands.Standard, commands.PolicyPatch{})
			b.declareAny("to", target)
			b.publish("from", inTurns(6, 3)...)
			open, err := b.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = open.Exec(ctx, `select leat.publish('to', 'open', 'k.1')`)
			require.NoError(t, err)
			seen := make(chan int64, 100)
			done := make(chan error, 1)
			go func() {
				req := whole("from", "to")
				req.Progress = func(r eventstore.Replay) { seen <- r.Messages }
				_, err := b.Republish(ctx, req)
				done <- err
			}()
			require.Zero(t, <-seen)
			if target == commands.FIFO {
				require.EqualValues(t, 1, <-seen, "up to the one that waits")
				require.Equal(t, []string{"0"}, b.contents())
			}
			require.NoError(t, open.Commit(ctx))
			require.NoError(t, <-done)
			require.Equal(t, numbered(6), b.contents())
			b.verify()
		})
	}
}

// Whoever resumes a replay has it; the one who ran it before goes on no more.
func TestRepublishIsTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("from", commands.Standard, commands.PolicyPatch{})
	b.stream("to", commands.PolicyPatch{})
	b.publish("from", inTurns(10, 2)...)
	req := whole("from", "to")
	req.Rate = 50 // 5 at a time
	var taken eventstore.Replay
	req.Progress = func(r eventstore.Replay) {
		if r.Messages == 5 {
			var err error
			taken, err = b.ResumeReplay(ctx, commands.ResumeRequest{ID: r.ID, Actor: "other"})
			require.NoError(t, err)
		}
	}
	began := time.Now()
	_, err := b.Republish(ctx, req)
	require.Equal(t, eventstore.ReplayTaken, refusal(t, err).Code)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, "the rate")
	require.EqualValues(t, 10, taken.Messages)
	again, err := b.ResumeReplay(ctx, commands.ResumeRequest{ID: taken.ID})
	require.NoError(t, err)
	require.True(t, again.Finished)
	require.Equal(t, numbered(10), b.contents())
	require.Equal(t, []string{"replay.started", "replay.advanced", "replay.resumed", "replay.finished"},
		texts(t, b.pool, `select e.kind::text from leat.events e where e.kind::text like 'replay.%' order by e.position`))
	b.verify()
}

// G2: a replay that is killed at any place, with its connection or its server, and
// resumed, has published each message once, in order.
func TestG2RepublishIsResumed(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	b := wired(t, server.URL())
	pool := b.pool
	b.declare("from", commands.FIFO, commands.PolicyPatch{})
	b.stream("to", commands.PolicyPatch{})
	const messages = 240
	b.publish("from", inTurns(messages, 5)...)
	// In its last statement a page fails now and then: all of it is rolled back.
	exec(t, pool, `create function leat.fail_at_random() returns trigger language plpgsql as $$
		begin
			if random() < 0.2 then
				raise exception 'injected' using errcode = 'XX000';
			elsif random() < 0.1 then
				perform pg_terminate_backend(pg_backend_pid());
			end if;
			return new;
		end $$`)
	exec(t, pool, `create trigger fail before update on leat.replays for each row when (new.run = old.run) execute function leat.fail_at_random()`)
	var id eventstore.Position
	req := whole("from", "to")
	req.Rate = 200 // in many small pages
	req.Progress = func(r eventstore.Replay) { id = r.ID }
	stopping := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Millisecond)
	}
	first, cancel := stopping()
	_, err := b.Republish(first, req)
	cancel()
	killed := false
	for deadline := time.Now().Add(3 * patience); err != nil || id == 0; {
		require.True(t, time.Now().Before(deadline), "%v", err)
		if id == 0 {
			_, err = b.Republish(ctx, req)
			continue
		}
		if done := len(b.contents()); !killed && done > messages/3 {
			killed = true
			server.Kill()
			require.NoError(t, server.Restart(ctx))
			insist(t, pool, `select`)
		}
		next, cancel := stopping()
		_, err = b.ResumeReplay(next, commands.ResumeRequest{ID: id})
		cancel()
	}
	require.True(t, killed)
	require.Equal(t, numbered(messages), b.contents())
	require.Empty(t, texts(t, pool, `select v::text from leat.verify_replays() v`))
}
