package dbtest

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations"
	"leat/migrations/pgserver"
)

// testSettings make servers of tests small.
var testSettings = map[string]string{
	"shared_buffers":  "64MB",
	"max_connections": "200",
	"max_wal_size":    "1GB",
}

// sharedSettings are for the server that is never crashed.
var sharedSettings = map[string]string{
	"fsync":                 "off",
	"full_page_writes":      "off",
	"max_wal_size":          "256MB",
	"min_wal_size":          "64MB",
	"max_wal_senders":       "50",
	"max_replication_slots": "50",
}

// Cluster gives the test a server of its own, with a migrated database leat,
// that it may kill and restart. Settings are those of postgresql.conf. Nothing
// restarts the server but the test, unless it calls the server's Run.
func Cluster(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), config(Folder(t), settings))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	defer pool.Close()
	_, err = migrations.Run(t.Context(), pool, shared.functions...)
	require.NoError(t, err)
	return server
}

// Folder gives the test a folder for the data of a server, which that server's user may
// enter, unlike one of t.TempDir. It is in memory where there is room, but not that of a
// benchmark, which is about disks too.
func Folder(t testing.TB) string {
	t.Helper()
	parent := inMemory()
	if _, measures := t.(*testing.B); measures {
		parent = ""
	}
	dir, err := makeFolder(parent)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func makeFolder(parent string) (string, error) { return os.MkdirTemp(parent, "leat-test-") }

func config(dir string, settings map[string]string) pgserver.Config {
	all := maps.Clone(testSettings)
	maps.Copy(all, settings)
	return pgserver.Config{DataDir: dir, Settings: all, Logger: slog.New(slog.DiscardHandler)}
}
