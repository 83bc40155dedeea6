package main

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

const stopSignal = syscall.SIGTERM

// G2: broker and PostgreSQL are killed with a delivery in flight; what was
// answered is there after the next start, and nothing more.
func TestG2KillEverything(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	broker := serveProcess(t, "--data", data)
	broker.leat("channel", "declare", "orders", "--base-delay", "0s", "--max-delay", "0s")
	broker.exits(exitOK, "{\"payload\":1}\n{\"payload\":2}\n{\"payload\":3}\n{\"payload\":4}\n", "publish", "orders", "--ndjson")
	taken := value[api.PollResult](broker, "poll", "orders", "-n", "3", "--lease", "2s").Deliveries
	require.Len(t, taken, 3)
	dead, acked, flying := taken[0], taken[1], taken[2]
	broker.leat("nack", "orders", dead.Receipt, "--action", "deadLetter", "--reason", "no such customer")
	broker.leat("ack", "orders", acked.Receipt)

	socket := socketFolder(t, value[api.Status](broker, "status"))
	killEverything(t, broker, data)
	broker = serveProcess(t, "--data", data)
	require.NoDirExists(t, socket)
	require.NotNil(t, broker.line("queue views rebuilt"), "the crash emptied the views")

	letters := value[api.DeadLetterPage](broker, "dlq", "list", "orders").DeadLetters
	require.Len(t, letters, 1)
	require.Equal(t, dead.MessageID, letters[0].MessageID)
	require.Equal(t, "no such customer", letters[0].Detail)
	require.Equal(t, "acked", value[api.StoredMessage](broker, "message", acked.MessageID.String()).State)
	attempts := map[eventstore.MessageID]int{}
	for range 2 {
		came := take(broker)
		attempts[came.MessageID] = came.Attempt
		broker.leat("ack", "orders", came.Receipt)
	}
	require.Equal(t, map[eventstore.MessageID]int{flying.MessageID: 2, flying.MessageID + 1: 1}, attempts)
	broker.exits(exitNothing, "", "poll", "orders")
	broker.exits(exitRefused, "", "ack", "orders", flying.Receipt)
	broker.leat("verify")
}

// killEverything kills a broker and its PostgreSQL at once. A broker that is
// halted first can neither restart the server nor stop it in good order.
func killEverything(t *testing.T, broker *process, data string) {
	t.Helper()
	require.NoError(t, broker.cmd.Process.Signal(syscall.SIGSTOP))
	text, err := os.ReadFile(filepath.Join(data, "pgdata", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	broker.stop(syscall.SIGKILL)
	require.Eventually(t, func() bool { return len(left(data)) == 0 }, patience, 10*time.Millisecond)
}

// A folder and an address have one broker, and when that one is told to end,
// nothing of it stays.
func TestOneBrokerPerFolder(t *testing.T) {
	t.Parallel()
	data := dataFolder(t)
	broker := serveProcess(t, "--data", data)
	socket := socketFolder(t, value[api.Status](broker, "status"))
	address := strings.TrimPrefix(broker.url, "http://")

	second := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--data", data)
	require.Equal(t, exitFailed, second.wait())
	require.Contains(t, second.text(), "in use by the process with pid "+strconv.Itoa(broker.cmd.Process.Pid))
	third := startProcess(t, "serve", "--listen", address, "--data", data)
	require.Equal(t, exitFailed, third.wait())
	require.Contains(t, third.text(), "--listen")

	require.Equal(t, exitOK, broker.stop(syscall.SIGTERM))
	require.Empty(t, left(data))
	require.NoDirExists(t, socket)
	_, err := net.Dial("tcp", address)
	require.Error(t, err)
	require.NotContains(t, broker.text(), `"level":"ERROR"`)
	require.NotContains(t, broker.text(), `"level":"WARN"`)
}

// socketFolder is where the database URL of a private PostgreSQL leads: psql
// needs no password there.
func socketFolder(t *testing.T, status api.Status) string {
	t.Helper()
	address, err := url.Parse(status.DatabaseURL)
	require.NoError(t, err)
	_, password := address.User.Password()
	require.False(t, password)
	folder := address.Query().Get("host")
	require.DirExists(t, folder)
	return folder
}
