package commands_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// kept is where a stream begins, and what was trimmed before.
func (b broker) kept(name string) (first eventstore.Offset, trimmed int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(ctx, `
		select s.first_offset, s.first_bytes from leat.streams s
		join leat.channels c on c.id = s.channel_id
		where c.name = $1 and c.deleted_at is null`, name).Scan(&first, &trimmed))
	return first, trimmed
}

func (b broker) waitKept(name string, want eventstore.Offset) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { first, _ := b.kept(name); return first == want }, patience, 10*time.Millisecond)
}

// The sweeper trims by each bound, and the log and the view agree.
func TestStreamRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("x", commands.Fanout)
	b.stream("messages", commands.PolicyPatch{Retention: commands.RetentionPatch{Messages: new(int64(3))}})
	b.stream("bytes", commands.PolicyPatch{Retention: commands.RetentionPatch{Bytes: new(int64(10))}})
	b.stream("both", commands.PolicyPatch{Retention: commands.RetentionPatch{Bytes: new(int64(1000)), Messages: new(int64(4))}})
	b.stream("all", commands.PolicyPatch{})
	for _, stream := range []string{"messages", "bytes", "both", "all"} {
		b.link("x", stream, commands.Match{})
	}
	b.publishTexts("x", "", "1", "22", "333", "4444")
	b.publishTexts("x", "k", "55555")
	b.publishTexts("both", "k", "6")
	b.waitKept("messages", 2)
	b.waitKept("bytes", 3) // 4444 and 55555 are 9
	b.waitKept("both", 2)
	_, trimmed := b.kept("bytes")
	require.EqualValues(t, 1+2+3, trimmed)
	b.waitKept("all", 0)
	b.verify()
	require.NotEmpty(t, texts(t, b.pool, `select data::text from leat.events where kind = 'stream.trimmed'`))

	// Nothing is trimmed again, and what comes goes on from there.
	b.publishTexts("messages", "", "x")
	b.waitKept("messages", 3)
	b.verify()
	require.NoError(t, b.DeleteChannel(ctx, "", "all", true))
	require.Equal(t, eventstore.ChannelNotEmpty, refusal(t, b.DeleteChannel(ctx, "", "both", false)).Code)
}

func TestStreamRetentionByAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	age := 500 * time.Millisecond
	b.stream("s", commands.PolicyPatch{Retention: commands.RetentionPatch{Age: &age}})
	b.publishTexts("s", "", "1", "2", "3")
	b.waitKept("s", 3)
	_, err := b.AlterChannel(ctx, "", "s", commands.PolicyPatch{Retention: commands.RetentionPatch{Age: new(time.Hour)}})
	require.NoError(t, err)
	b.publishTexts("s", "", "4")
	_, err = b.pool.Exec(ctx, `select leat.trim_streams(10)`)
	require.NoError(t, err)
	b.waitKept("s", 3)
	b.verify()
	require.NoError(t, b.DeleteChannel(ctx, "", "s", true))
}

// A page is bounded, also within a large batch of copies, and many brokers at once
// trim each message once.
func TestStreamRetentionInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("x", commands.Fanout)
	s := b.stream("s", commands.PolicyPatch{})
	b.link("x", "s", commands.Match{})
	b.publishTexts("x", "", numbered(3000)...)
	_, err := b.pool.Exec(ctx, `update leat.channels set retention_messages = 100 where id = $1`, s.ID)
	require.NoError(t, err)
	var more bool
	require.NoError(t, b.pool.QueryRow(ctx, `select leat.trim_streams(1000)`).Scan(&more))
	require.True(t, more)
	done := make(chan error)
	for range 4 {
		go func() {
			_, err := b.pool.Exec(ctx, `select leat.trim_streams(1000) from generate_series(1, 5)`)
			done <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	b.waitKept("s", 2900)
	_, trimmed := b.kept("s")
	require.EqualValues(t, len(strings.Join(numbered(2900), "")), trimmed)
	b.verify()
}

// A stream that somebody trims, or deletes, right now is passed over.
func TestStreamRetentionPassesOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 2 {
		name := fmt.Sprint("s", i)
		b.stream(name, commands.PolicyPatch{})
		b.publishTexts(name, "", "1", "2")
	}
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `select from leat.streams order by channel_id limit 1 for update`)
	require.NoError(t, err)
	_, err = b.pool.Exec(ctx, `update leat.channels set retention_messages = 1`)
	require.NoError(t, err)
	b.waitKept("s1", 1)
	b.waitKept("s0", 0)
	require.NoError(t, tx.Rollback(ctx))
	b.waitKept("s0", 1)
}
