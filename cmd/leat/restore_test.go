//go:build unix

package main

import (
	"context"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

const (
	inBetween    = 20 * time.Millisecond
	restoredLine = "this database was restored from a copy: what came after the copy is not in it. Streams have a new epoch: " +
		"readers that were ahead of where they end are refused as epoch_changed, all others go on"
)

// tools are PostgreSQL's own programs, of the server behind a pool.
type tools struct {
	t   *testing.T
	bin string
}

func toolsOf(t *testing.T, pool *pgxpool.Pool) tools {
	t.Helper()
	var bin string
	require.NoError(t, pool.QueryRow(t.Context(), `select setting from pg_catalog.pg_config where name = 'BINDIR'`).Scan(&bin))
	if _, err := exec.LookPath(filepath.Join(bin, "pg_dump")); err != nil {
		t.Skip("this PostgreSQL comes without pg_dump")
	}
	return tools{t, bin}
}

func (u tools) run(name string, args ...string) {
	u.t.Helper()
	out, err := exec.CommandContext(u.t.Context(), filepath.Join(u.bin, name), args...).CombinedOutput()
	require.NoError(u.t, err, "%s: %s", name, out)
}

// newDatabase makes a database in a server and returns its URL.
func newDatabase(t *testing.T, server, name string) string {
	t.Helper()
	admin, err := pgxpool.New(t.Context(), server)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.Exec(t.Context(), `create database `+name+` template template0`)
	require.NoError(t, err)
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// past is a broker with something of everything, and what was known of it.
type past struct {
	epoch   eventstore.Position // of the stream
	receipt string              // of a message that is leased
	last    eventstore.Position
}

// lived fills a broker: a queue with messages that wait, are leased, dead, delayed and
// done; a FIFO queue with an open circuit; a stream of 10 with a link, a point and a
// group; a relay; a replay that broke off; a seal.
func lived(t *testing.T, p *process, pool *pgxpool.Pool) past {
	t.Helper()
	p.leat("channel", "declare", "jobs")
	p.leat("channel", "declare", "strict", "--mode", "fifo")
	p.leat("channel", "declare", "flow", "--kind", "stream")
	p.leat("channel", "declare", "copies")
	p.leat("channel", "declare", "again", "--mode", "fifo")
	p.leat("link", "declare", "flow", "copies")
	p.exits(exitOK, strings.Repeat("{\"payload\":1}\n", 10), "publish", "flow", "--ndjson")
	p.exits(exitOK, strings.Repeat("{\"payload\":1,\"routingKey\":\"k\"}\n", 10), "publish", "jobs", "--ndjson")
	p.leat("publish", "jobs", "later", "--delay", "1h")
	p.leat("publish", "strict", "bad", "--key", "k")
	p.leat("publish", "strict", "next", "--key", "k")
	p.leat("nack", "strict", deliver(p, "strict").Receipt, "--action", "deadLetter")
	p.leat("nack", "jobs", deliver(p, "jobs").Receipt, "--action", "deadLetter")
	p.leat("ack", "jobs", deliver(p, "jobs").Receipt)
	p.leat("point", "create", "flow", "billing", "--from", "earliest")
	p.leat("point", "create", "flow", "group", "--from", "earliest", "--partitions", "4")
	p.leat("point", "commit", "flow", "billing", "4")
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`create table watermill_orders ("offset" bigserial, uuid varchar(36) not null, created_at timestamp default current_timestamp,
		payload json, metadata json, transaction_id xid8 not null, primary key (transaction_id, "offset"))`)
	exec(writeRows)
	p.leat("channel", "declare", "relayed")
	p.leat("relay", "declare", "orders", "--topic", "orders", "--to", "relayed", "--every", "20ms")
	require.Eventually(t, func() bool { return value[api.Relay](p, "relay", "show", "orders").Moved == 3 }, patience, inBetween)
	exec(`select (leat.start_replay(leat.plan_replay('jobs', 'again', null, null, null, null, null, null, null, 0, 'test'))).id`)
	known := past{receipt: deliver(p, "jobs").Receipt}
	known.epoch = value[api.Channel](p, "channel", "get", "flow").Epoch
	known.last = value[api.Status](p, "status").LastPosition
	p.leat("log", "seal")
	return known
}

// deliver takes a message of a queue.
func deliver(p *process, queue string) api.Delivery {
	p.t.Helper()
	polled := value[api.PollResult](p, "poll", queue, "--wait", "30s", "--lease", "1h")
	require.Len(p.t, polled.Deliveries, 1)
	return polled.Deliveries[0]
}

const writeRows = `insert into watermill_orders (uuid, payload, metadata, transaction_id)
	select n, '1', '{}', pg_current_xact_id() from generate_series(1, 3) n`

// page reads a stream from an offset of an epoch on.
func page(t *testing.T, p *process, epoch eventstore.Position, from string) (api.StreamPage, error) {
	t.Helper()
	c, err := client.New(p.url, client.Options{})
	require.NoError(t, err)
	defer c.Close()
	return c.ReadStream(t.Context(), "flow", client.StreamFilter{From: from, Epoch: epoch})
}

// changed is the problem of a cursor of another epoch.
func changed(t *testing.T, err error) *api.Problem {
	t.Helper()
	var problem *api.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, eventstore.EpochChanged, problem.Code)
	return problem
}

// A log that was restored from a dump goes on in another cluster: positions, points,
// relays, replays, projections, leases, and the chain. A reader that had all of what is
// there goes on with its old cursor; nobody else does. Also of a dump that is older than
// what readers have had: then the same offsets become others, and they are told,
// however much was published since.
func TestRestoredFromDump(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	use := toolsOf(t, pool)
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	broker := serveProcess(t, "--database-url", address)
	known := lived(t, broker, pool)
	dir := t.TempDir()
	early, late := filepath.Join(dir, "early"), filepath.Join(dir, "late")
	use.run("pg_dump", "--format=custom", "--no-owner", "--file", early, address)
	broker.exits(exitOK, strings.Repeat("{\"payload\":2}\n", 5), "publish", "flow", "--ndjson")
	stats := caught(t, broker, since)
	broker.leat("log", "seal")
	use.run("pg_dump", "--no-owner", "--file", late, address)
	require.Nil(t, value[api.Status](broker, "status").Restored)

	server := dbtest.Cluster(t, map[string]string{"fsync": "off"}).URL()
	t.Run("of all", func(t *testing.T) {
		to := newDatabase(t, server, "late")
		use.run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", late, to)
		p := serveProcess(t, "--database-url", to)
		now := restored(t, p, known)
		for _, epoch := range []eventstore.Position{known.epoch, now, 0} {
			got, err := page(t, p, epoch, "15")
			require.NoError(t, err)
			require.Equal(t, now, got.Epoch)
			require.EqualValues(t, 15, got.End)
		}
		whole(t, p)
		require.Equal(t, stats, caught(t, p, since))
		goesOn(t, p, to, known)
		p.leat("publish", "flow", "3")
		_, err := page(t, p, known.epoch, "15")
		require.NoError(t, err, "it had all that was before")
		problem := changed(t, second(page(t, p, known.epoch, "16")))
		require.Equal(t, &api.StreamPosition{Epoch: now, Offset: 15}, problem.Resume)
		whole(t, p)
	})
	t.Run("of less than readers had", func(t *testing.T) {
		to := newDatabase(t, server, "early")
		use.run("pg_restore", "--no-owner", "--exit-on-error", "--dbname", to, early)
		p := serveProcess(t, "--database-url", to)
		now := restored(t, p, known)
		p.exits(exitOK, strings.Repeat("{\"payload\":3}\n", 10), "publish", "flow", "--ndjson") // others than the 5 that are lost
		for _, from := range []string{"11", "15"} {
			problem := changed(t, second(page(t, p, known.epoch, from)))
			require.Equal(t, &api.StreamPosition{Epoch: now, Offset: 10}, problem.Resume)
		}
		got, err := page(t, p, known.epoch, "10")
		require.NoError(t, err)
		require.Len(t, got.Messages, 10)

		c, err := client.New(p.url, client.Options{})
		require.NoError(t, err)
		defer c.Close()
		none := func(context.Context, client.Message) error { return nil }
		err = c.Subscribe(t.Context(), "flow", client.SubscribeConfig{From: "15", Epoch: known.epoch}, none)
		require.NotNil(t, changed(t, err).Resume)
		err = c.Subscribe(t.Context(), "flow", client.SubscribeConfig{Point: "billing", Epoch: known.epoch}, none)
		require.NotNil(t, changed(t, err).Resume)
		require.Contains(t, p.exits(exitFailed, "", "tail", "flow", "--from", "12", "--epoch", known.epoch.String()).errs, "epoch_changed")
		require.Contains(t, p.exits(exitFailed, "", "point", "commit", "flow", "billing", "10", "--epoch", known.epoch.String()).errs, "epoch_changed")
		p.leat("point", "commit", "flow", "billing", "9", "--epoch", known.epoch.String())
		p.leat("point", "commit", "flow", "billing", "10", "--epoch", now.String())
		goesOn(t, p, to, known)
		whole(t, p)

		require.Zero(t, p.stop(syscall.SIGTERM)) // noticed once, and for all
		p = serveProcess(t, "--database-url", to)
		require.Nil(t, p.line(restoredLine))
		require.Equal(t, now, value[api.Channel](p, "channel", "get", "flow").Epoch)
		require.Len(t, strings.Split(strings.TrimSpace(p.leat("replay", "--kind", "log.restored")), "\n"), 1)
	})
}

// restored holds that a broker noticed and said that its database was restored, and
// returns the epoch of the stream since.
func restored(t *testing.T, p *process, known past) eventstore.Position {
	t.Helper()
	require.NotNil(t, p.line(restoredLine))
	status := value[api.Status](p, "status")
	require.NotNil(t, status.Restored)
	require.Greater(t, status.Restored.Position, known.last, "positions go on")
	require.Contains(t, p.leat("status"), "this database is not the one that it was")
	now := value[api.Channel](p, "channel", "get", "flow").Epoch
	require.Greater(t, now, known.epoch)
	point := value[api.Point](p, "point", "show", "flow", "billing")
	require.Equal(t, now, point.Epoch)
	require.EqualValues(t, 5, point.Next)
	require.Len(t, value[api.Point](p, "point", "show", "flow", "group").Partitions, 4)
	return now
}

// whole holds the views and the chain against the log.
func whole(t *testing.T, p *process) {
	t.Helper()
	p.leat("verify")
	require.NotContains(t, p.leat("verify", "--chain"), "differ")
	p.leat("rebuild")
	p.leat("verify")
}

// caught is what the statistics say of the queue when they have all of the log.
func caught(t *testing.T, p *process, since string) (counts string) {
	t.Helper()
	end := value[api.Status](p, "status").LastPosition
	c, err := client.New(p.url, client.Options{})
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		for _, projection := range value[api.Status](p, "status").Projections {
			if projection.Position < end {
				return false
			}
		}
		return true
	}, patience, inBetween)
	return p.leat("stats", "jobs", "--since", since)
}

// goesOn does with everything of the past what comes next.
func goesOn(t *testing.T, p *process, address string, known past) {
	t.Helper()
	p.leat("ack", "jobs", known.receipt)
	sent := value[api.PublishResult](p, "publish", "jobs", "new")
	require.Greater(t, eventstore.Position(sent.Messages[0].MessageID), known.last)
	replay := value[api.ReplayPage](p, "republish", "list").Replays[0]
	require.Zero(t, replay.Messages)
	p.leat("republish", "resume", replay.ID.String())
	require.EqualValues(t, 11, value[api.ReplayPage](p, "republish", "list").Replays[0].Messages)
	p.leat("circuit", "close", "strict", "k", "--recover")
	require.Equal(t, "bad", string(deliver(p, "strict").Bytes()))
	require.Contains(t, p.leat("dlq", "list", "jobs"), "rejected")

	pool, err := pgxpool.New(t.Context(), address)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), writeRows)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		relay := value[api.Relay](p, "relay", "show", "orders")
		return relay.Moved == 6 && relay.Lag == 0 && relay.RestoredAt != nil
	}, patience, inBetween)
	require.EqualValues(t, 6, value[api.Channel](p, "channel", "get", "relayed").Counts.Ready)
}

func second[A, B any](_ A, b B) B { return b }
