package ws_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api/ws"
)

// idleClients is the variable by which this program, run again, is the clients.
const idleClients = "LEAT_TEST_IDLE_CLIENTS"

// Two thousand subscribers that wait cost less than 100 MiB.
func TestIdleSubscribersAreCheap(t *testing.T) {
	const count = 2000
	if address := os.Getenv(idleClients); address != "" {
		holdConnections(t, address, count)
		return
	}
	s := setup(t, ws.Config{})
	before, residentBefore := inUse(), resident()

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleSubscribersAreCheap$")
	cmd.Env = append(os.Environ(), idleClients+"="+strings.TrimPrefix(s.url, "http://"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "open" {
		t.Log(lines.Text())
	}
	require.Equal(t, count, s.stream.Subscribers())
	grown, residentGrown := inUse()-before, resident()-residentBefore

	t.Logf("%d connections: %d bytes each of heap and stacks, %d of resident memory", count, grown/count, residentGrown/count)
	require.Less(t, grown, 100<<20)
	require.NoError(t, stdin.Close())
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
}

// holdConnections opens connections and holds them until the end of the input.
func holdConnections(t *testing.T, address string, count int) {
	t.Helper()
	s := &site{t: t, url: "http://" + address}
	var held []net.Conn
	for range count {
		c := s.dialRaw("/s")
		c.until(opText)
		held = append(held, c.conn)
	}
	fmt.Println("open")
	_, err := io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
	for _, c := range held {
		require.NoError(t, c.Close())
	}
}

// inUse is the memory of live objects and of stacks.
func inUse() int {
	runtime.GC()
	runtime.GC() // finalizers of the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// resident is that of the process, 0 where it is not to be had.
func resident() int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}
