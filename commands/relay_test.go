package commands_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// outbox makes the table that Watermill's publisher makes for a topic.
func (b broker) outbox(topic, payload string) {
	b.t.Helper()
	exec(b.t.(*testing.T), b.pool, fmt.Sprintf(`create table %s (
		"offset" bigserial,
		"uuid" varchar(36) not null,
		"created_at" timestamp not null default current_timestamp,
		"payload" %s default null,
		"metadata" json default null,
		"transaction_id" xid8 not null,
		primary key ("transaction_id", "offset"))`, table(topic), payload))
}

func table(topic string) string { return pgx.Identifier{"watermill_" + topic}.Sanitize() }

// row is how Watermill's publisher writes one, with the payload's text as UUID.
func row(topic string, payload any) string {
	return fmt.Sprintf(`insert into %s (uuid, payload, metadata, transaction_id)
		values ('%[2]v', '%[2]v', '{"k": "v", "key": "%[2]v"}', pg_current_xact_id())`, table(topic), payload)
}

func (b broker) relay(spec commands.RelaySpec) {
	b.t.Helper()
	created, err := b.DeclareRelay(ctx, "test", spec)
	require.NoError(b.t, err)
	require.True(b.t, created)
}

// step moves what can be moved now, and answers how many rows.
func (b broker) step(name string) (moved int) {
	b.t.Helper()
	for {
		var n int
		var more bool
		err := b.pool.QueryRow(ctx, "select s.moved, s.more from leat.relay_step($1, 2) s", name).Scan(&n, &more)
		require.NoError(b.t, err)
		if moved += n; !more {
			return moved
		}
	}
}

// published are the payloads of a channel's published messages, in their order.
func (b broker) published(channel string) []string {
	b.t.Helper()
	return texts(b.t.(*testing.T), b.pool, `select convert_from(e.payload, 'UTF8') from leat.events e join leat.channels c on c.id = e.channel_id
		where c.name = '`+channel+`' and e.kind = 'message.published' order by e.position`)
}

// still is a broker whose relays do not run by themselves: the tests step.
func still(t *testing.T) broker {
	t.Helper()
	pool := dbtest.New(t)
	return broker{Broker: commands.New(commands.Config{Pool: pool, Logger: slog.New(slog.DiscardHandler)}), t: t, pool: pool}
}

// What a row says arrives.
func TestRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.outbox("or-ders", "json")
	exec(t, b.pool, row("or-ders", 1))
	b.relay(commands.RelaySpec{Name: "r", Table: "watermill_or-ders", Channel: "q", Key: "key", Every: 10 * time.Millisecond})
	exec(t, b.pool, `insert into "watermill_or-ders" (uuid, payload, metadata, transaction_id)
		values ('é', '{"a" :  1.0}', 'null', pg_current_xact_id()), ('n', null, null, pg_current_xact_id())`)
	got := b.receive("q", 3)
	require.Equal(t, "1", string(got[0].Payload))
	require.Equal(t, "1", got[0].RoutingKey)
	require.JSONEq(t, `{"k": "v", "key": "1", "_watermill_message_uuid": "1"}`, string(got[0].Headers))
	require.Equal(t, `{"a" :  1.0}`, string(got[1].Payload))
	require.JSONEq(t, `{"_watermill_message_uuid": "é"}`, string(got[1].Headers))
	require.Empty(t, got[2].Payload)
	require.Equal(t, []string{"relay:r"}, texts(t, b.pool, "select distinct actor from leat.events where kind = 'message.published'"))

	created, err := b.DeclareRelay(ctx, "test", commands.RelaySpec{Name: "r", Table: "watermill_or-ders", Channel: "q", Key: "key", Every: 10 * time.Millisecond})
	require.NoError(t, err)
	require.False(t, created)
	_, err = b.DeclareRelay(ctx, "test", commands.RelaySpec{Name: "r", Table: "watermill_or-ders", Channel: "q"})
	require.Equal(t, eventstore.RelayConflict, refusal(t, err).Code)
	require.NoError(t, b.DeleteRelay(ctx, "test", "r"))
	require.Equal(t, eventstore.RelayNotFound, refusal(t, b.DeleteRelay(ctx, "test", "r")).Code)
	require.Equal(t, eventstore.RelayNotFound, refusal(t, b.SkipRelay(ctx, "test", "r", 1)).Code)
}

func TestRelayRefusals(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.outbox("t", "json")
	exec(t, b.pool, `create table watermill_odd ("offset" bigint, uuid text, payload integer, transaction_id xid8)`)
	for want, spec := range map[string]commands.RelaySpec{
		"table":   {Name: "r", Channel: "q"},
		"no tab":  {Name: "r", Table: "watermill_none", Channel: "q"},
		"columns": {Name: "r", Table: "watermill_odd", Channel: "q"},
		"is no t": {Name: "r", Schema: "leat", Table: "events", Channel: "q"},
		"channel": {Name: "r", Table: "watermill_t", Channel: "none"},
		"every":   {Name: "r", Table: "watermill_t", Channel: "q", Every: time.Microsecond},
		"earlie":  {Name: "r", Table: "watermill_t", Channel: "q", Latest: true, Remove: true},
		"name":    {Name: strings.Repeat("r", 201), Table: "watermill_t", Channel: "q"},
	} {
		_, err := b.DeclareRelay(ctx, "test", spec)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, refusal(t, err).Code)
	}
}

// A row with a lower offset, or an older transaction, that is committed later is
// not passed over, and a rollback holds nothing up.
func TestF26RelayLateCommits(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.outbox("t", "json")
	b.relay(commands.RelaySpec{Name: "r", Table: "watermill_t", Channel: "q"})
	first, undone := begin(t, b.pool, row("t", 1)), begin(t, b.pool, row("t", 2))
	exec(t, b.pool, row("t", 3))
	require.Zero(t, b.step("r"))
	require.NoError(t, undone.Rollback(ctx))
	require.Zero(t, b.step("r"))
	exec(t, b.pool, row("t", 4))
	require.NoError(t, first.Commit(ctx))
	require.Equal(t, 3, b.step("r"))
	require.Equal(t, []string{"1", "3", "4"}, b.published("q"))
	require.Zero(t, b.step("r"))

	b.outbox("gone", "bytea")
	b.relay(commands.RelaySpec{Name: "deletes", Table: "watermill_gone", Channel: "q", Remove: true})
	late := begin(t, b.pool, row("gone", 5))
	exec(t, b.pool, row("gone", 6))
	require.Equal(t, 1, b.step("deletes"), "a relay that deletes rows needs no place, and waits for nobody")
	require.NoError(t, late.Commit(ctx))
	require.Equal(t, 1, b.step("deletes"))
	require.Equal(t, []string{"1", "3", "4", "6", "5"}, b.published("q"))
	require.Equal(t, []string{"0"}, texts(t, b.pool, "select count(*) from watermill_gone"))
}

// Whatever ends its sessions, and whoever else writes and rolls back: each row
// arrives once.
func TestRelayExactlyOnce(t *testing.T) {
	t.Parallel()
	b := still(t)
	pool, err := pgxpool.NewWithConfig(ctx, b.pool.Config()) // for those whose sessions end
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	serve(t, pool, commands.Config{})
	serve(t, pool, commands.Config{})
	for _, remove := range []bool{false, true} {
		name := "s" + strconv.FormatBool(remove)
		b.outbox(name, "json")
		b.stream(name, commands.PolicyPatch{})
		b.relay(commands.RelaySpec{Name: name, Table: "watermill_" + name, Channel: name, Remove: remove, Every: 10 * time.Millisecond})
	}
	const writers, each = 4, 50
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				for _, topic := range []string{"sfalse", "strue"} {
					tx, err := b.pool.Begin(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = tx.Exec(ctx, row(topic, w*each+n))
					if rand.IntN(5) == 0 && err == nil {
						err = tx.Rollback(ctx)
						if err == nil {
							_, err = b.pool.Exec(ctx, row(topic, w*each+n))
						}
					} else if err == nil {
						err = tx.Commit(ctx)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	written := make(chan struct{})
	go func() {
		writing.Wait()
		close(written)
	}()
	var want []string
	for n := range writers * each {
		want = append(want, strconv.Itoa(n))
	}
	slices.Sort(want)
	arrived := func() bool {
		select {
		case <-written:
			return len(b.published("sfalse")) >= len(want) && len(b.published("strue")) >= len(want)
		default:
			_, err := b.pool.Exec(ctx, `select pg_terminate_backend(a.pid) from pg_stat_activity a
				where a.datname = current_database() and a.query like '%relayStep%' and a.pid <> pg_backend_pid() and random() < 0.3`)
			require.NoError(t, err)
			return false
		}
	}
	require.Eventually(t, arrived, patience, 20*time.Millisecond)
	for _, name := range []string{"sfalse", "strue"} {
		got := b.published(name)
		slices.Sort(got)
		require.Equal(t, want, got)
	}
}

// A table that was restored into another cluster has transaction ids that say
// nothing there: the rows that were not moved are, once, and so are new ones.
func TestRelayRestored(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.outbox("t", "json")
	b.relay(commands.RelaySpec{Name: "r", Table: "watermill_t", Channel: "q"})
	restored := func() {
		// As if all of it had happened where transaction ids are a million further on.
		exec(t, b.pool, `update watermill_t set transaction_id = (transaction_id::text::bigint + 1000000)::text::xid8;
			update leat.relays set cluster = cluster + 1,
				last_transaction = (last_transaction::text::bigint + 1000000)::text::xid8,
				horizon = (horizon::text::bigint + 1000000)::text::xid8`)
	}
	next := 0
	write := func(n int) {
		for range n {
			next++
			exec(t, b.pool, row("t", next))
		}
	}
	want := func() (list []string) {
		for n := range next {
			list = append(list, strconv.Itoa(n+1))
		}
		return list
	}
	write(3)
	require.Equal(t, 3, b.step("r"))
	for range 3 {
		write(4) // not moved before the restore
		restored()
		write(2) // since, before the relay looks
		require.Equal(t, 6, b.step("r"))
		require.Equal(t, []string{"true"}, texts(t, b.pool, "select (restored_at is not null)::text from leat.relays"))
		require.Equal(t, want(), b.published("q"))
		write(2)
		require.Equal(t, 2, b.step("r"))
		exec(t, b.pool, "update leat.relays set restored_at = null")
	}
	exec(t, b.pool, "vacuum full watermill_t")
	require.Zero(t, b.step("r"), "the table has another file, with the same rows")
	write(1)
	require.Equal(t, 1, b.step("r"))
	exec(t, b.pool, "truncate watermill_t restart identity")
	write(2)
	require.Equal(t, 2, b.step("r"))
	exec(t, b.pool, "drop table watermill_t")
	b.outbox("t", "json")
	write(2)
	require.Equal(t, 2, b.step("r"))
	require.Equal(t, want(), b.published("q"))
}

// A relay begins with what is there, or leaves it out.
func TestRelayBeginnings(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("new", commands.Standard, commands.PolicyPatch{})
	b.outbox("t", "json")
	for n := range 5 {
		exec(t, b.pool, row("t", n))
	}
	b.relay(commands.RelaySpec{Name: "all", Table: "watermill_t", Channel: "q"})
	b.relay(commands.RelaySpec{Name: "new", Table: "watermill_t", Channel: "new", Latest: true})
	exec(t, b.pool, row("t", 5))
	require.Equal(t, 6, b.step("all"))
	require.Equal(t, 1, b.step("new"))
	require.Equal(t, []string{"5"}, b.published("new"))

	open := begin(t, b.pool, row("t", 6))
	_, err := b.DeclareRelay(ctx, "test", commands.RelaySpec{Name: "busy", Table: "watermill_t", Channel: "q"})
	require.Equal(t, eventstore.Busy, refusal(t, err).Code)
	require.NoError(t, open.Rollback(ctx))
}

// A row that no channel takes stops its relay, which says which it is, until it
// is skipped.
func TestRelayBadRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.outbox("t", "json")
	for _, n := range []string{"1", "2"} {
		exec(t, b.pool, row("t", n))
	}
	exec(t, b.pool, `insert into watermill_t (uuid, payload, metadata, transaction_id) values ('3', '3', '{"a": "\u0000"}', pg_current_xact_id())`)
	exec(t, b.pool, row("t", 4))
	b.relay(commands.RelaySpec{Name: "r", Table: "watermill_t", Channel: "q", Every: time.Hour})
	require.Eventually(t, func() bool {
		failures := texts(t, b.pool, "select failure from leat.relays where failure is not null")
		return len(failures) == 1 && strings.Contains(failures[0], "the row with offset 3 of ")
	}, patience, 10*time.Millisecond)
	require.Equal(t, []string{"1", "2"}, b.published("q"))
	require.ErrorContains(t, b.SkipRelay(ctx, "test", "r", 4), "the next row has the offset 3, not 4")
	require.NoError(t, b.SkipRelay(ctx, "test", "r", 3)) // and it looks again, long before it would by itself
	require.Eventually(t, func() bool { return len(b.published("q")) == 3 }, patience, 10*time.Millisecond)
	require.Empty(t, texts(t, b.pool, "select failure from leat.relays where failure is not null"))
	require.NoError(t, b.DeleteRelay(ctx, "test", "r"))
	require.Equal(t, []string{"relay.declared test r", "relay.skipped test r 3", "relay.deleted test r"}, texts(t, b.pool,
		`select concat_ws(' ', e.kind, e.actor, e.data ->> 'relay', e.data ->> 'offset') from leat.events e
		 join leat.channels c on c.id = e.channel_id and c.name = 'q' where e.kind::text like 'relay.%' order by e.position`))
}
