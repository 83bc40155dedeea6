package replication

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// collector is a receiver that takes everything.
type collector struct {
	bytes   int
	copies  int
	batches int
}

func (c *collector) Wants(eventstore.ChannelID, eventstore.Offset) bool { return true }

func (c *collector) Message(_ eventstore.ChannelID, m *eventstore.StreamMessage) {
	c.bytes += len(m.Payload) + len(m.Headers) + len(m.RoutingKey)
}

func (c *collector) Batch(_ eventstore.ChannelID, _ eventstore.Offset, n int) {
	c.batches++
	c.copies += n
}

func (c *collector) Wake(channels ...eventstore.ChannelID) { c.bytes += len(channels) }

// Messages as PostgreSQL 15 sent them: a relation of three columns, and rows.
var recorded = []string{
	"52000040006c656174006576656e747300640003" + // relation, leat, events
		"006368616e6e656c5f69640000000017ffffffff" + "0073747265616d5f6f66667365740000000014ffffffff" + "007061796c6f61640000000011ffffffff",
	"49000040004e0003" + "620000000400000007" + "62000000080000000000000005" + "62000000026869",
	"49000040004e0003" + "740000000137" + "740000000135" + "74000000065c7836383639",
	"49000040004e0003" + "740000000137" + "6e" + "6e",
	"4d010000000001020304" + "6c65617400" + "00000003312c32", // cut short
	"4d01000000000102030405" + "6c65617400" + "00000003312c32",
	"42000000000152ec18000304" + "7ddb5ffbb6000002d7", "43",
}

// Whatever bytes come, the decoder answers with an error at most, and what it takes
// is no more than what came.
func FuzzPgOutput(f *testing.F) {
	for _, text := range recorded {
		data, err := hex.DecodeString(text)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := pgoutput{relations: map[uint32][]column{0x4000: {columnChannel, columnOffset, columnPayload}}}
		var c collector
		if p.decode(data, &c) == nil {
			require.LessOrEqual(t, c.bytes+c.copies, 2*len(data))
		}
		// The message may have been another relation.
		if len(data) > 0 && data[0] == 'R' {
			insert, err := hex.DecodeString(recorded[1])
			require.NoError(t, err)
			_ = p.decode(insert, &c) // an error is as good
		}
	})
}

func FuzzWal2JSON(f *testing.F) {
	for _, text := range []string{
		`{"action":"I","schema":"leat","table":"events_default","columns":[{"name":"channel_id","value":7},{"name":"stream_offset","value":5},` +
			`{"name":"position","value":9},{"name":"at","value":"2026-01-02 03:04:05.678901+00"},{"name":"headers","value":"{\"a\": 1}"},` +
			`{"name":"routing_key","value":"k"},{"name":"payload","value":"6869"},{"name":"origin_ids","value":"{1}"},{"name":"message_ids","value":null}]}`,
		`{"action":"I","schema":"leat","table":"events","columns":[{"name":"channel_id","value":7},{"name":"stream_offset","value":5},{"name":"message_ids","value":"{1,2,3}"}]}`,
		`{"action":"I","schema":"leat","table":"events","columns":[{"name":"stream_offset","value":null}]}`,
		`{"action":"M","transactional":true,"prefix":"leat","content":"1,2"}`,
		`{"action":"B"}`, `[]`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c collector
		if (wal2json{}).decode(data, &c) == nil {
			require.LessOrEqual(t, c.bytes+c.copies, 4*len(data)) // a bad byte becomes U+FFFD, of three
		}
	})
}
