package main

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/api"
)

// relay moves what an application wrote, by a broker that runs.
func (p *process) relay(t *testing.T, pool *pgxpool.Pool) {
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`create table watermill_orders ("offset" bigserial, uuid varchar(36) not null, created_at timestamp default current_timestamp,
		payload json, metadata json, transaction_id xid8 not null, primary key (transaction_id, "offset"))`)
	p.leat("channel", "declare", "relayed")
	made := value[api.Relay](p, "relay", "declare", "orders", "--topic", "orders", "--to", "relayed", "--key", "customer", "--every", "20ms")
	require.Equal(t, made.DeclaredAt, value[api.Relay](p, "relay", "declare", "orders", "--topic", "orders", "--to", "relayed",
		"--key", "customer", "--every", "20ms").DeclaredAt, "it exists")
	require.Contains(t, p.exits(exitFailed, "", "relay", "declare", "orders", "--topic", "orders", "--to", "jobs").errs, "relay_conflict")
	require.Contains(t, p.exits(exitFailed, "", "relay", "declare", "none", "--topic", "none", "--to", "jobs").errs, "watermill_none")
	exec(`insert into watermill_orders (uuid, payload, metadata, transaction_id)
		select n, '{"order": 1}', '{"customer": "c"}', pg_current_xact_id() from generate_series(1, 3) n`)
	exec(`insert into watermill_orders (uuid, payload, metadata, transaction_id) values ('bad', '1', '{"a": "\u0000"}', pg_current_xact_id())`)
	require.Eventually(t, func() bool {
		return value[api.Relay](p, "relay", "show", "orders").Failure != ""
	}, 30*time.Second, 20*time.Millisecond)
	require.Regexp(t, `orders +\S*watermill_orders +relayed +3 +1 +.*offset 4`, p.leat("relay", "list"))
	require.Contains(t, p.exits(exitFailed, "", "relay", "skip", "orders", "7").errs, "the next row has the offset 4")
	require.Regexp(t, `lag +0\nfailure +-\n`, p.leat("relay", "skip", "orders", "4"))
	require.Regexp(t, `c +.*"order": 1`, p.leat("peek", "relayed"))
	require.Contains(t, p.leat("relay", "delete", "orders"), "relay orders is deleted")
	require.Contains(t, p.exits(exitNothing, "", "relay", "show", "orders").errs, "relay_not_found")
}
