package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/migrations/dbtest"
)

// The log is sealed while the broker runs, and whoever changes it is found: by the
// broker and by the database alone.
func TestChain(t *testing.T) {
	t.Parallel()
	pool, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--seal", "50ms")
	broker.exits(exitNothing, "", "verify", "--chain")
	broker.leat("channel", "declare", "orders")
	broker.leat("publish", "orders", `{"order":4711}`)
	require.Eventually(t, func() bool {
		var seals int
		err := pool.QueryRow(t.Context(), `select count(*) from leat.seals(0, 10) s where s.event > (select max(position) from leat.events where kind = 'message.published')`).Scan(&seals)
		return err == nil && seals > 0
	}, patience, 20*time.Millisecond)

	var sealed api.SealResult
	require.NoError(t, json.Unmarshal([]byte(broker.leat("log", "seal", "-o", "json")), &sealed))
	require.Contains(t, broker.leat("log", "seal"), "digest")
	require.Contains(t, broker.leat("verify", "--chain"), "the log is what was sealed")
	require.Contains(t, broker.leat("verify", "--chain", "--expect", sealed.Seal.Digest), "found")
	other := sealed.Seal.Digest[32:] + sealed.Seal.Digest[:32]
	require.Contains(t, broker.exits(exitDifferent, "", "verify", "--chain", "--expect", other).out, "NOT in the chain")

	shown := broker.leat("log", "show")
	require.Contains(t, shown, sealed.Seal.Digest)
	require.Contains(t, shown, "messages of orders from ")
	require.Contains(t, shown, "open, young, unsealed")

	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `set local session_replication_role = replica;
			update leat.events set payload = '{"order":4712}' where kind = 'message.published'`)
		return err
	})
	require.NoError(t, err)
	require.Contains(t, broker.exits(exitDifferent, "", "verify", "--chain").out, "changed")
	got := command(t.Context(), "", "verify", "--chain", "--database-url", database, "--expect", sealed.Seal.Digest, "-o", "json")
	require.Equal(t, exitDifferent, got.code, got.errs)
	var result chainResult
	require.NoError(t, json.Unmarshal([]byte(got.out), &result))
	require.True(t, *result.Expected)
	require.Len(t, result.Faults, 1)
	require.Equal(t, "changed", result.Faults[0].Kind)
}
