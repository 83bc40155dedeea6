package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/migrations/dbtest"
)

// What a queue held is counted, published again into a stream, and shown where it is
// asked for. A broker that is killed meanwhile leaves a replay that another one goes on
// with: each message is there once, in order.
func TestRepublishByHand(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--durable-views")
	broker.leat("channel", "declare", "orders")
	broker.leat("channel", "declare", "check", "--kind", "stream")
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "{\"payload\":%d,\"routingKey\":\"k.%d\"}\n", i, i%2)
	}
	broker.exits(exitOK, lines.String(), "publish", "orders", "--ndjson")
	broker.leat("ack", "orders", take(broker).Receipt)

	dry := value[api.Replay](broker, "republish", "start", "orders", "check", "--key", "k.1", "--dry-run")
	require.EqualValues(t, 30, dry.Messages)
	require.Contains(t, broker.leat("republish", "start", "orders", "check", "--since", "1h", "--dry-run"), "60 messages, 110 bytes, would be published")
	require.Contains(t, broker.exits(exitNothing, "", "republish", "start", "orders", "none").errs, "channel_not_found")
	require.Contains(t, broker.exits(exitUsage, "", "republish", "start", "orders", "check", "--rate", "0").errs, "--rate must be at least 1")
	require.Contains(t, broker.exits(exitNothing, "", "republish", "resume", "4711").errs, "replay_not_found")
	require.Empty(t, value[api.ReplayPage](broker, "republish", "list").Replays)

	// Killed on its way.
	running := exec.CommandContext(t.Context(), os.Args[0], "republish", "start", "orders", "check", "--rate", "20")
	running.Env = append(os.Environ(), mainEnv+"=1", "LEAT_URL="+broker.url)
	complaints, err := running.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, running.Start())
	require.Eventually(t, func() bool {
		replays := value[api.ReplayPage](broker, "republish", "list").Replays
		return len(replays) == 1 && replays[0].Messages > 3
	}, patience, 20*time.Millisecond, "the replay does not get on its way")
	broker.stop(syscall.SIGKILL)
	said := bufio.NewScanner(complaints)
	require.True(t, said.Scan())
	require.Contains(t, said.Text(), "go on with leat republish resume")
	require.Error(t, running.Wait())

	broker = serveProcess(t, "--database-url", database, "--durable-views")
	left := value[api.ReplayPage](broker, "republish", "list").Replays[0]
	require.False(t, left.Finished)
	require.Less(t, left.Messages, int64(60))
	require.Contains(t, broker.leat("republish", "resume", left.ID.String()), "60 messages of orders published again into check")
	require.Regexp(t, `orders +check .* 60 +100 %`, broker.leat("republish", "list"))
	var page api.StreamPage
	require.NoError(t, json.Unmarshal([]byte(broker.leat("peek", "check", "--from", "earliest", "-o", "json", "-n", "100")), &page))
	require.Len(t, page.Messages, 60)
	for i, m := range page.Messages {
		require.Equal(t, fmt.Sprint(i), string(m.Payload))
	}
	first := page.Messages[0]
	require.Regexp(t, `republished from`, broker.leat("trace", first.OriginMessageID.String()))
	require.Regexp(t, `published again`, broker.leat("trace", first.OriginMessageID.String()))
	broker.leat("verify")
}
