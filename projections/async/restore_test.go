package async_test

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

// Projections go on where they were in a database that was restored from a dump into
// another server, and in one whose server was killed, which loses the last commits.
func TestRestoredAndKilled(t *testing.T) {
	t.Parallel()
	old, address := dbtest.NewURL(t)
	by := hand(t, old)
	_, stop := run(t, quick(t, old))
	declareAll(t, by)
	r := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		act(t, by, r)
	}
	caughtUp(t, old)
	stop()
	for range 5 {
		act(t, by, r) // what is not in them yet
	}
	position := one[int64](t, old, `select position from leat.projections where name = 'statistics'`)

	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	pool := restore(t, old, address, server.URL())
	require.Equal(t, position, one[int64](t, pool, `select position from leat.projections where name = 'statistics'`))
	run(t, quick(t, pool).MostWait(50*time.Millisecond))
	by = hand(t, pool)
	for range 10 {
		act(t, by, r)
	}
	caughtUp(t, pool)
	requireEqual(t, pool)

	act(t, by, r)
	server.Kill()
	require.NoError(t, server.Restart(t.Context()))
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return by.Ping(ctx) == nil
	})
	do(t, by, `select leat.rebuild_views()`)
	for range 5 {
		act(t, by, r)
	}
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// restore copies a database into another server by pg_dump and psql.
func restore(t testing.TB, from *pgxpool.Pool, address, server string) *pgxpool.Pool {
	t.Helper()
	bin := one[string](t, from, `select setting from pg_catalog.pg_config where name = 'BINDIR'`)
	if _, err := exec.LookPath(filepath.Join(bin, "pg_dump")); err != nil {
		t.Skip("this PostgreSQL comes without pg_dump")
	}
	dump := filepath.Join(t.TempDir(), "dump.sql")
	tool(t, filepath.Join(bin, "pg_dump"), "--no-owner", "--file", dump, address)
	admin, err := pgxpool.New(t.Context(), server)
	require.NoError(t, err)
	defer admin.Close()
	do(t, admin, `create database restored template template0`)
	target, err := url.Parse(server)
	require.NoError(t, err)
	target.Path = "/restored"
	tool(t, filepath.Join(bin, "psql"), "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, target.String())
	pool, err := pgxpool.New(t.Context(), target.String())
	require.NoError(t, err)
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

func tool(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}
