package pgserver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/migrations/pgserver"
)

// fakeServer makes a folder with programs that only know their version.
func fakeServer(t *testing.T, version string) string {
	t.Helper()
	dir := tempDir(t)
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s (Debian)'\n", version)
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}

func TestNoServerInstalled(t *testing.T) {
	t.Parallel()
	cfg := config(filepath.Join(tempDir(t), "data"))
	cfg.BinDir = t.TempDir()
	_, err := pgserver.Start(t.Context(), cfg)
	var missing *pgserver.NotFoundError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.NoDirExists(t, cfg.DataDir, "a failed start leaves no traces")
}

func TestOldServerInstalled(t *testing.T) {
	t.Parallel()
	cfg := config(filepath.Join(tempDir(t), "data"))
	cfg.BinDir = fakeServer(t, "14.11")
	_, err := pgserver.Start(t.Context(), cfg)
	var missing *pgserver.NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"14.11 in " + cfg.BinDir}, missing.Older)
}

func TestOtherMajor(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	require.NoError(t, os.Mkdir(pgdata, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(pgdata, "PG_VERSION"), []byte("16\n"), 0o600))
	cfg := config(dir)
	cfg.BinDir = fakeServer(t, "17.2")
	_, err := pgserver.Start(t.Context(), cfg)
	var other *pgserver.VersionError
	require.ErrorAs(t, err, &other)
	require.Equal(t, 16, other.Major)
	require.Equal(t, []int{17}, other.Found)
	require.ErrorContains(t, err, "install postgresql-16")
	entries, err := os.ReadDir(pgdata)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the folder was not touched")
}
