package replication_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// member is the tail and the registry of a broker.
type member struct {
	*tail
	registry *replication.Registry
	leave    func()
}

func join(t *testing.T, pool *pgxpool.Pool, address, id string, change func(*replication.TailConfig)) *member {
	t.Helper()
	m := &member{tail: startTail(t, pool, address, change)}
	m.registry = replication.NewRegistry(pool, id, m.Tail, quiet)
	m.leave = run(t, m.registry.Run)
	return m
}

func off(c *replication.TailConfig) { c.Off = true }

// knows waits until a broker knows which others there are.
func (m *member) knows(t *testing.T, wal, notify bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return m.registry.Others(replication.ModeWAL) == wal && m.registry.Others(replication.ModeNotify) == notify
	}, patience, 5*time.Millisecond, "others that read the log: %v, that listen: %v", wal, notify)
}

// A broker tells at once how it hears, and is gone after a clean stop; one that died
// counts until its life runs out, and is removed later. The table may be emptied at
// any time.
func TestRegistry(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	exec(t, pool, `
		insert into leat.brokers (id, tail, since, until)
		values ('died long ago', 'wal', now(), now() - interval '2 min'), ('died', 'notify', now(), now() - interval '5 s')`)
	a := join(t, pool, address, "a", off)
	a.knows(t, false, false)
	b := join(t, pool, address, "b", nil)
	b.live(t, 1)
	b.knows(t, false, true)
	a.knows(t, true, false)
	exec(t, pool, `truncate leat.brokers`)
	require.Eventually(t, func() bool {
		return ask[int](t, pool, `select count(*) from leat.brokers`) == 2
	}, patience, 20*time.Millisecond)
	a.knows(t, true, false)
	b.leave()
	a.knows(t, false, false)
	require.Equal(t, "a", ask[string](t, pool, `select string_agg(id, ',') from leat.brokers`))
	require.Equal(t, "switched off by the setting tail", ask[string](t, pool, `select reason from leat.brokers`))
}

// Announcements go the way in which others hear, and to nobody if there is nobody.
func TestAnnouncerTells(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	notified := subscribe(t, pool)
	a := join(t, pool, address, "a", off)
	announcer := replication.NewAnnouncer(pool, a.registry, quiet)
	run(t, announcer.Run)
	announce := func(id eventstore.ChannelID, logged bool) {
		announcer.Announce([]eventstore.ChannelID{id}, logged)
	}
	a.knows(t, false, false)
	announce(1, false) // nobody is there

	b := join(t, pool, address, "b", nil)
	b.live(t, 1)
	b.heard.all(t)
	a.knows(t, true, false)
	announce(2, true) // b has read it in the log
	announce(3, false)
	require.Equal(t, []eventstore.ChannelID{3}, b.heard.next(t))

	c := join(t, pool, address, "c", off)
	a.knows(t, true, true)
	announce(4, true)
	require.Equal(t, "4", notified())
	announce(5, false)
	require.Equal(t, "5", notified())
	for heard := b.heard.next(t); heard[0] != 5; heard = b.heard.next(t) {
		require.Equal(t, []eventstore.ChannelID{3}, heard) // once more
	}
	c.leave()
}
