//go:build unix

package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/migrations/pgserver"
)

// Standby gives the test a standby of a server that Cluster gave, which follows it and
// may be promoted. From then on a commit of the primary waits for the standby.
func Standby(t testing.TB, primary *pgserver.Server, settings map[string]string) *pgserver.Server {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), primary.URL())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var folder, programs string
	err = conn.QueryRow(t.Context(), `select current_setting('data_directory'), (select setting from pg_config where name = 'BINDIR')`).
		Scan(&folder, &programs)
	require.NoError(t, err)

	dir := Folder(t)
	copying := exec.CommandContext(t.Context(), filepath.Join(programs, "pg_basebackup"), "--dbname", primary.URL(),
		"--pgdata", filepath.Join(dir, "pgdata"), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	out, err := copying.CombinedOutput()
	require.NoError(t, err, "%s", out)
	password, err := os.ReadFile(filepath.Join(filepath.Dir(folder), "password"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), password, 0o600))
	giveTo(t, folder, dir)

	server, err := pgserver.Start(t.Context(), config(dir, settings))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	for _, sql := range []string{`alter system set synchronous_standby_names = '*'`, `select pg_reload_conf()`} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var follows bool
		err := conn.QueryRow(t.Context(), `select exists (select from pg_stat_replication where sync_state = 'sync')`).Scan(&follows)
		return err == nil && follows
	}, patience, 10*time.Millisecond)
	return server
}

// Promote makes a standby the primary, that waits for nobody.
func Promote(t testing.TB, standby *pgserver.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), standby.URL())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{`select pg_promote()`, `alter system reset synchronous_standby_names`, `select pg_reload_conf()`} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

// giveTo gives everything in a folder to the owner of another one.
func giveTo(t testing.TB, like, dir string) {
	t.Helper()
	info, err := os.Stat(like)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	change := exec.CommandContext(t.Context(), "chown", "-R", fmt.Sprintf("%d:%d", owner.Uid, owner.Gid), dir)
	out, err := change.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
