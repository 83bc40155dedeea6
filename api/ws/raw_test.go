package ws_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawClient speaks the protocol by hand: it answers nothing by itself.
type rawClient struct {
	t      testing.TB
	conn   net.Conn
	reader *bufio.Reader
}

func (s *site) dialRaw(path string) *rawClient {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(s.t, conn.(*net.TCPConn).SetReadBuffer(16<<10))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path)
	require.NoError(s.t, err)
	c := &rawClient{s.t, conn, bufio.NewReader(conn)}
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(patience)))
	response, err := http.ReadResponse(c.reader, nil) //nolint:bodyclose // it has none
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusSwitchingProtocols, response.StatusCode)
	return c
}

// Opcodes.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// next reads a frame; an error is the end of the connection.
func (c *rawClient) next() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 127)
	switch size {
	case 126:
		var n [2]byte
		if _, err := io.ReadFull(c.reader, n[:]); err != nil {
			return 0, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(n[:]))
	case 127:
		var n [8]byte
		if _, err := io.ReadFull(c.reader, n[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(n[:])
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.reader, payload)
	return head[0] & 15, payload, err
}

// until reads up to a frame of that kind.
func (c *rawClient) until(want byte) []byte {
	c.t.Helper()
	for {
		opcode, payload, err := c.next()
		require.NoError(c.t, err)
		if opcode == want {
			return payload
		}
	}
}

// send writes a frame with a mask of zeros.
func (c *rawClient) send(opcode byte, payload string) {
	c.t.Helper()
	frame := []byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}
	_, err := c.conn.Write(append(frame, payload...))
	require.NoError(c.t, err)
}
