package replication_test

import (
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// lose takes the messages from an offset on away, as an earlier copy of the database
// does, and commits n others at once.
func (s *stream) lose(from eventstore.Offset, sql string, n int) {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local session_replication_role = replica`); err != nil { // the log takes no deletes
			return err
		}
		for _, sql := range []string{
			`delete from leat.events where channel_id = $1 and stream_offset >= $2`,
			`update leat.stream_heads set next_offset = $2 where channel_id = $1`,
		} {
			if _, err := tx.Exec(ctx, sql, s.channel, from); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sql, s.channel, n, keys, 0)
		return err
	}))
	s.next = from + eventstore.Offset(n)
}

// F28: a database that lacks messages which readers were given, and has others at
// their offsets, ends the subscriptions: nobody goes on in silence.
func TestF28ReplacedCommits(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"messages": write, "copies": copyIn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, s := pointsHub(t)
			s.commit(sql, 7)
			early := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0), Window: 2})
			read(t, early).until(2)
			late := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
			s.commit(sql, 2)
			s.commit(sql, 3)
			late.until(12)
			point := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p", Start: from(0)})
			read(t, point).until(12)
			hub.Interrupted()
			s.lose(9, sql, 20)
			hub.Live()
			requireCode(t, ended(t, late.sub), eventstore.OffsetAhead, s.at(9))
			requireCode(t, ended(t, early), eventstore.OffsetAhead, s.at(2))
			requireCode(t, point.Commit(ctx, *s.at(11)), eventstore.OffsetAhead, s.at(9))
			requireCode(t, ended(t, point), eventstore.OffsetAhead, s.at(9))

			again := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: from(9)}))
			again.until(29)
			s.commit(sql, 1)
			again.until(30)
		})
	}
}

// F28: the same without a tail, and without a break that could be noticed.
func TestF28ReplacedCommitsUnnoticed(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	s.append(12)
	r.until(12)
	s.lose(5, write, 7) // as many
	requireCode(t, ended(t, r.sub), eventstore.OffsetAhead, s.at(5))
}

// F28: retention and a database that was away are no loss.
func TestNothingReplaced(t *testing.T) {
	t.Parallel()
	hub, s := hubOn(t)
	r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	for range 3 {
		s.append(5)
		r.until(s.next)
		hub.Interrupted()
		s.append(5)
		s.copies(5)
		hub.Live()
		r.until(s.next)
		s.trim(s.next)
	}
}

// F28: a server that is replaced by an earlier copy of itself, in which others publish
// as much again.
func TestF28EarlierCopy(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	hub := startHub(t, replication.HubConfig{Pool: pool})
	s := newStream(t, pool, "s")
	s.append(10)
	folder := ask[string](t, pool, `show data_directory`)
	earlier := filepath.Join(filepath.Dir(folder), "earlier")
	server.Kill()
	require.NoError(t, osexec.Command("cp", "-a", folder, earlier).Run())
	require.NoError(t, server.Restart(ctx))

	tl := startTail(t, pool, server.URL(), func(c *replication.TailConfig) { c.Sink = hub })
	require.Eventually(t, func() bool { return tl.State().Slot != "" && pool.Ping(ctx) == nil }, patience, soon)
	r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	s.append(5)
	r.until(15)
	server.Kill()
	require.NoError(t, osexec.Command("rm", "-r", folder).Run())
	require.NoError(t, osexec.Command("mv", earlier, folder).Run())
	require.NoError(t, server.Restart(ctx))
	require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, patience, soon)
	s.append(20) // from 10 on, behind what the reader has
	require.Equal(t, eventstore.Offset(30), ask[eventstore.Offset](t, pool, `select next_offset from leat.stream_heads where channel_id = $1`, s.channel))
	err = ended(t, r.sub)
	requireCode(t, err, eventstore.OffsetAhead, s.at(10))
	require.ErrorContains(t, err, "has others at their offsets, from 10 on")
}
