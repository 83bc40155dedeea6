package dbtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

func TestClusterMayBeKilled(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"work_mem": "7MB"})
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "create table leat.kept as select current_setting('work_mem') as mem")
	require.NoError(t, err)

	server.Kill()
	require.Error(t, pool.Ping(t.Context()))
	require.NoError(t, server.Restart(t.Context()))
	var mem string
	require.NoError(t, pool.QueryRow(t.Context(), "select mem from leat.kept").Scan(&mem))
	require.Equal(t, "7MB", mem)
}
