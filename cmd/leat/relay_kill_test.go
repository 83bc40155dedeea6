//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

// G2: a relay whose broker is killed again and again, wherever it is, moves each row once,
// in order.
func TestG2RelayKilled(t *testing.T) {
	t.Parallel()
	pool, database := dbtest.NewURL(t)
	_, err := pool.Exec(t.Context(), `create table watermill_orders (
		"offset" bigserial, uuid varchar(36) not null, created_at timestamp not null default current_timestamp,
		payload json, metadata json, transaction_id xid8 not null, primary key (transaction_id, "offset"))`)
	require.NoError(t, err)
	serve := func() *process { return serveProcess(t, "--database-url", database, "--projections=false") }
	broker := serve()
	broker.leat("channel", "declare", "orders", "--kind", "stream")
	broker.leat("relay", "declare", "shop", "--topic", "orders", "--to", "orders", "--every", "100ms")

	var written atomic.Int64
	writing, enough := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer enough()
	writer.Go(func() {
		for n := int64(0); writing.Err() == nil; n += 10 {
			batch := &pgx.Batch{} // one transaction
			for i := range int64(10) {
				batch.Queue(`insert into watermill_orders (uuid, payload, metadata, transaction_id) values ($1::text, $1::text::json, '{}', pg_current_xact_id())`,
					strconv.FormatInt(n+i, 10))
			}
			if err := pool.SendBatch(t.Context(), batch).Close(); err != nil {
				t.Errorf("write rows from %d on: %v", n, err)
				return
			}
			written.Store(n + 10)
		}
	})
	moved := func() (n int64) {
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from leat.events where stream_offset >= 0`).Scan(&n))
		return n
	}
	for kill := range 5 {
		before := moved()
		require.Eventually(t, func() bool { return moved() > before+int64(kill*10) }, patience, time.Millisecond, "it moves on")
		broker.stop(syscall.SIGKILL)
		broker = serve()
	}
	enough()
	writer.Wait()
	require.Eventually(t, func() bool { return moved() >= written.Load() }, patience, 10*time.Millisecond)
	rows, err := pool.Query(t.Context(), `select convert_from(payload, 'UTF8') from leat.events where stream_offset >= 0 order by stream_offset`)
	require.NoError(t, err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, payloads, int(written.Load()))
	for i, p := range payloads {
		require.Equal(t, fmt.Sprint(i), p)
	}
	require.Contains(t, broker.leat("relay", "list"), "shop")
	broker.leat("verify")
}
