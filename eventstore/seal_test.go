package eventstore_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/eventstore"
	"leat/migrations/dbtest"
)

// chain is a sealed log.
type chain struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *eventstore.Store
}

func newChain(t *testing.T) *chain {
	t.Helper()
	pool := dbtest.New(t)
	return &chain{t, pool, eventstore.New(pool)}
}

func (c *chain) exec(sql string, args ...any) {
	c.t.Helper()
	_, err := c.pool.Exec(context.Background(), sql, args...)
	require.NoError(c.t, err)
}

// tamper is exec of a superuser who gets past the trigger.
func (c *chain) tamper(sql string, args ...any) {
	c.t.Helper()
	tx, err := c.pool.Begin(context.Background())
	require.NoError(c.t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(context.Background(), `set local session_replication_role = replica`)
	require.NoError(c.t, err)
	tag, err := tx.Exec(context.Background(), sql, args...)
	require.NoError(c.t, err)
	require.NotZero(c.t, tag.RowsAffected())
	require.NoError(c.t, tx.Commit(context.Background()))
}

// append appends messages with all columns of the log in use.
func (c *chain) append(n int) {
	c.t.Helper()
	c.exec(`insert into leat.events (kind, channel_id, actor, routing_key, payload, headers, priority, due_at, message_ids, message_ranges)
		select 'message.published', 1, 'test', 'k' || i, convert_to(repeat('x', i % 50), 'UTF8'), '{"b": 1, "a": 1.50}', 3, now(), '{1,2}', '{[1,5)}'
		from generate_series(1, $1) i`, n)
}

func (c *chain) seal() *eventstore.Seal {
	c.t.Helper()
	seal, err := c.store.Seal(c.t.Context(), 0)
	require.NoError(c.t, err)
	return seal
}

// verify goes through all pages.
func (c *chain) verify(expect *eventstore.Digest) (all eventstore.ChainPage) {
	c.t.Helper()
	at, err := c.store.ChainStart(c.t.Context())
	require.NoError(c.t, err)
	for {
		page, err := c.store.VerifyChain(c.t.Context(), at, expect)
		require.NoError(c.t, err)
		all.Seals += page.Seals
		all.Events += page.Events
		all.Bytes += page.Bytes
		all.Faults = append(all.Faults, page.Faults...)
		all.End, all.Met = page.End, all.Met || page.Met
		if !page.More {
			return all
		}
		at = page.End
	}
}

// faults verifies, and answers what was found where.
func (c *chain) faults() (kinds []eventstore.FaultKind, all []eventstore.ChainFault) {
	c.t.Helper()
	all = c.verify(nil).Faults
	for _, f := range all {
		kinds = append(kinds, f.Kind)
	}
	return kinds, all
}

// Seals follow on each other, and cover what was appended, seals included; nothing
// new is no seal.
func TestSeal(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	require.Nil(t, c.seal())
	c.append(3000)
	first := c.seal()
	require.EqualValues(t, 1, first.From)
	require.EqualValues(t, 3000, first.Events)
	require.Len(t, first.Blocks, 3)
	require.Zero(t, first.Previous)
	require.Nil(t, c.seal(), "a seal alone needs none")
	c.append(1)
	second := c.seal()
	require.Equal(t, first.Digest, second.Previous)
	require.Equal(t, first.To+1, second.From)
	require.EqualValues(t, 2, second.Events, "the first seal, too")

	found := c.verify(nil)
	require.Empty(t, found.Faults)
	require.Equal(t, 2, found.Seals)
	require.Equal(t, first.Events+second.Events, found.Events)
	require.Equal(t, first.Bytes+second.Bytes, found.Bytes)
	require.Equal(t, second.Digest, found.End.Digest)
	require.True(t, c.verify(&first.Digest).Met)
	require.False(t, c.verify(&eventstore.Digest{1}).Met)

	young, err := c.store.Seal(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Nil(t, young, "what is little and young can wait")
	c.append(70_000)
	large, err := c.store.Seal(t.Context(), time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 65_536, large.Events)
	require.Empty(t, c.verify(nil).Faults)
}

// Whatever a superuser changes is found, and located.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.append(5000)
	first := c.seal()
	c.append(1000)
	second := c.seal()
	c.append(1000)
	third := c.seal()
	undo := func(sql string, args ...any) { c.tamper(sql, args...); kinds, _ := c.faults(); require.Empty(t, kinds) }

	// A byte of a payload.
	c.tamper(`update leat.events set payload = set_byte(payload, 0, 121) where position = 2049`)
	kinds, faults := c.faults()
	require.Equal(t, []eventstore.FaultKind{eventstore.FaultChanged}, kinds)
	require.EqualValues(t, 2049, faults[0].From)
	require.EqualValues(t, 3072, faults[0].To)
	undo(`update leat.events set payload = set_byte(payload, 0, 120) where position = 2049`)
	// Each column, at its turn.
	for column, values := range map[string][2]string{
		"at": {"at + interval '1 us'", "at - interval '1 us'"}, "actor": {"'nobody'", "'test'"}, "routing_key": {"''", "'k7'"},
		"headers": {`'{"a": 1.5, "b": 1}'`, `'{"a": 1.50, "b": 1}'`}, "delivery": {"0", "null"}, "priority": {"null", "3"},
		"message_ids": {"'{1,3}'", "'{1,2}'"}, "message_ranges": {"null", "'{[1,5)}'"}, "data": {"'{}'", "null"},
		"content_type": {"'text/plain'", "null"}, "stream_offset": {"1", "null"}, "channel_id": {"2", "1"},
	} {
		c.tamper(`update leat.events set ` + column + ` = ` + values[0] + ` where position = 7`)
		kinds, _ := c.faults()
		require.Equal(t, []eventstore.FaultKind{eventstore.FaultChanged}, kinds, column)
		c.tamper(`update leat.events set ` + column + ` = ` + values[1] + ` where position = 7`)
	}
	// An event that is gone, and one that was not there.
	c.tamper(`update leat.events set position = 1000000000 where position = $1`, second.From+10)
	kinds, faults = c.faults()
	require.Equal(t, []eventstore.FaultKind{eventstore.FaultRemoved}, kinds)
	require.Equal(t, second.From, faults[0].From)
	c.tamper(`update leat.events set position = $1 where position = 1000000000`, second.From+10)
	c.exec(`select setval('leat.position_seq', last_value + 10) from leat.position_seq`)
	c.append(1)
	fourth := c.seal()
	c.tamper(`insert into leat.events (position, kind, actor) values ($1, 'link.deleted', 'nobody')`, fourth.From+3)
	kinds, faults = c.faults()
	require.Equal(t, []eventstore.FaultKind{eventstore.FaultAdded}, kinds)
	require.Equal(t, fourth.From, faults[0].From)
	undo(`delete from leat.events where position = $1`, fourth.From+3)

	// Seals: one that is gone, one that says something else, one that somebody else wrote.
	c.tamper(`update leat.events set kind = 'link.deleted' where position = $1`, second.Position)
	kinds, faults = c.faults()
	require.Equal(t, []eventstore.FaultKind{eventstore.FaultLink, eventstore.FaultChanged}, kinds)
	require.Equal(t, second.From, faults[0].From)
	require.Equal(t, second.To, faults[0].To)
	undo(`update leat.events set kind = 'log.sealed' where position = $1`, second.Position)
	c.tamper(`update leat.events set data = jsonb_set(data, '{blocks,0,events}', '1') where position = $1`, first.Position)
	kinds, _ = c.faults()
	require.Contains(t, kinds, eventstore.FaultSeal)
	c.tamper(`update leat.events set data = jsonb_set(data, '{blocks,0,events}', '1024') where position = $1`, first.Position)
	c.exec(`select leat.append_log('log.sealed', 'nobody', data - 'position') from leat.events where position = $1`, third.Position)
	kinds, _ = c.faults()
	require.Equal(t, []eventstore.FaultKind{eventstore.FaultSeal}, kinds)
}

// Brokers that seal at the same time make one chain, and appends that are open are
// in none of its seals before they end.
func TestSealersTogether(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	ctx, stop := context.WithCancel(t.Context())
	var parts errgroup.Group
	for range 3 {
		parts.Go(func() error { return (&eventstore.Sealer{Store: c.store, Interval: time.Millisecond}).Run(ctx) })
	}
	for range 20 {
		parts.Go(func() error { write(t.Context(), t, c.pool); return nil })
	}
	require.Eventually(t, func() bool {
		seal, _, err := c.store.LastSeal(t.Context())
		return assert.NoError(t, err) && seal != nil && seal.To > 400
	}, 30*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, parts.Wait())
	require.NoError(t, c.store.SealAll(t.Context(), 0))
	found := c.verify(nil)
	require.Empty(t, found.Faults)
	require.Greater(t, found.Seals, 3)
}

// What pg_dump writes, which is COPY's text, and another database reads, is what was
// sealed; and the chain goes on there.
func TestChainSurvivesRestore(t *testing.T) {
	t.Parallel()
	c, restored := newChain(t), newChain(t)
	c.append(2000)
	c.seal()
	c.append(10)
	before := c.seal()

	var dump bytes.Buffer
	c.copy(`copy (select * from leat.events) to stdout`, func(conn *pgconn.PgConn, sql string) error {
		_, err := conn.CopyTo(t.Context(), &dump, sql)
		return err
	})
	restored.copy(`copy leat.events from stdin`, func(conn *pgconn.PgConn, sql string) error {
		_, err := conn.CopyFrom(t.Context(), &dump, sql)
		return err
	})
	restored.exec(`select setval('leat.position_seq', max(position)) from leat.events`)
	restored.append(10)
	after := restored.seal()
	require.Equal(t, before.Digest, after.Previous)
	found := restored.verify(&before.Digest)
	require.Empty(t, found.Faults)
	require.True(t, found.Met)
}

func (c *chain) copy(sql string, do func(*pgconn.PgConn, string) error) {
	c.t.Helper()
	conn, err := c.pool.Acquire(c.t.Context())
	require.NoError(c.t, err)
	defer conn.Release()
	require.NoError(c.t, do(conn.Conn().PgConn(), sql))
}

// A column that the digests do not cover could be changed unseen.
func TestSealsCoverAllColumns(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var columns string
	require.NoError(t, pool.QueryRow(t.Context(), `select string_agg('e.' || attname, E',\n       ' order by attnum)
		from pg_attribute where attrelid = 'leat.events'::regclass and attnum > 0 and not attisdropped`).Scan(&columns))
	for column := range strings.SplitSeq(columns, ",\n       ") {
		require.Contains(t, strings.Split(eventstore.CanonicalColumns, ",\n       "), column, "give the algorithm another name and add it")
	}
}

// Digests of yesterday have to be those of tomorrow.
func TestSealIsStable(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.exec(`set datestyle = 'German'`)
	c.exec(`insert into leat.events (at, kind, channel_id, delivery, stream_offset, due_at, expires_at, priority, routing_key,
			content_type, actor, headers, message_ids, origin_ids, data, payload, message_ranges)
		values ('2026-01-02 03:04:05.678901Z', 'message.published', 7, 6, 5, '2026-01-02Z', '2026-01-03Z', 4, 'ключ', 'text/plain', 'me',
			'{"n": 1.50, "a": "é"}', '{1,2}', '{3,4}', '{"x": [true, null]}', '\x00ff', '{[1,3),[5,9)}'),
			('2026-01-02 03:04:06Z', 'message.acked', 7, null, null, null, null, null, null, null, null, null, null, null, null, '', null)`)
	seal := c.seal()
	require.Equal(t, "d10b6f0bea61d100b14092e218d52b8512ca8ce9b25fa55482243c1d3807658b", seal.Digest.String())
}

// How fast half a million messages of 200 bytes are sealed, and verified.
func BenchmarkChain(b *testing.B) {
	pool := dbtest.New(b)
	_, err := pool.Exec(b.Context(), `insert into leat.events (kind, channel_id, actor, routing_key, payload)
		select 'message.published', 1, 'test', 'k' || i, convert_to(repeat('x', 200), 'UTF8') from generate_series(1, 500000) i`)
	require.NoError(b, err)
	store := eventstore.New(pool)
	var sealed, verified int64
	began := time.Now()
	for {
		seal, err := store.Seal(b.Context(), 0)
		require.NoError(b, err)
		if seal == nil {
			break
		}
		sealed += seal.Bytes
	}
	sealing := time.Since(began)
	for b.Loop() {
		for at, more := (eventstore.ChainPoint{}), true; more; {
			page, err := store.VerifyChain(b.Context(), at, nil)
			require.NoError(b, err)
			require.Empty(b, page.Faults)
			verified += page.Bytes
			at, more = page.End, page.More
		}
	}
	b.ReportMetric(float64(sealed)/sealing.Seconds()/1e6, "sealMB/s")
	b.ReportMetric(float64(verified)/b.Elapsed().Seconds()/1e6, "verifyMB/s")
	b.ReportMetric(float64(verified)/float64(sealed)*500_000/b.Elapsed().Seconds(), "events/s")
}
