package queries_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/queries"
)

// logged is an event that a test writes into the log.
type logged struct {
	position eventstore.Position // 0 is the next
	kind     eventstore.Kind
	channel  string
	key      *string
	ids      []eventstore.MessageID
	origins  []eventstore.MessageID
	ranges   string
	headers  string
	data     any
	expires  *time.Time
}

// log appends an event.
func (b bench) log(e logged) (position eventstore.Position) {
	b.t.Helper()
	var data []byte
	if e.data != nil {
		var err error
		data, err = json.Marshal(e.data)
		require.NoError(b.t, err)
	}
	if e.ids == nil {
		e.ids = []eventstore.MessageID{}
	}
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
		insert into leat.events (position, kind, channel_id, routing_key, message_ids, origin_ids, message_ranges, headers, data, expires_at, actor)
		select coalesce(nullif($1, 0), nextval('leat.position_seq')), $2, c.id, $4, $5, $6, nullif($7, '')::int8multirange,
			nullif($8, '')::jsonb, $9::jsonb, $10, 'somebody'
		from leat.channels c
		where c.name = $3
		returning position`,
		e.position, string(e.kind), e.channel, e.key, e.ids, e.origins, e.ranges, e.headers, data, e.expires).Scan(&position))
	return position
}

// is appends an event of some messages.
func (b bench) is(kind eventstore.Kind, channel string, data any, ids ...eventstore.MessageID) {
	b.t.Helper()
	b.log(logged{kind: kind, channel: channel, data: data, ids: ids})
}

// draw takes numbers from the sequence of ids and positions.
func (b bench) draw(n int) (numbers []int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(),
		`select array(select nextval('leat.position_seq') from generate_series(1, $1))`, n).Scan(&numbers))
	return numbers
}

// original is a message that is copied.
type original struct {
	id, origin eventstore.MessageID // no origin: itself
	key        string
}

// copies writes what a copy of messages from one channel to others is in the
// log, and returns the copies target by target.
func (b bench) copies(cause, source, headers string, of []original, targets ...string) (made [][]original) {
	b.t.Helper()
	routed := logged{position: eventstore.Position(b.draw(1)[0]), kind: eventstore.MessageRouted, channel: source}
	for _, o := range of {
		routed.ids = append(routed.ids, o.id)
	}
	var to []eventstore.Position
	for _, target := range targets {
		numbers := b.draw(len(of) + 1)
		copied := logged{position: eventstore.Position(numbers[len(of)]), kind: eventstore.MessageCopied, channel: target, headers: headers}
		data := map[string]any{"from": routed.position}
		var list []original
		var keys []string
		mixed, nested := false, false
		for i, o := range of {
			origin := o.origin
			if origin == 0 {
				origin = o.id
			}
			c := original{eventstore.MessageID(numbers[i]), origin, o.key}
			list = append(list, c)
			keys = append(keys, c.key)
			copied.ids = append(copied.ids, c.id)
			copied.origins = append(copied.origins, origin)
			mixed = mixed || c.key != of[0].key
			nested = nested || origin != o.id
		}
		if nested {
			data["parents"] = routed.ids
		}
		if mixed {
			data["keys"] = keys
		} else {
			copied.key = &keys[0]
		}
		copied.data = data
		to = append(to, b.log(copied))
		made = append(made, list)
	}
	routed.data = map[string]any{"cause": cause, "to": to}
	b.log(routed)
	return made
}

// exchange makes an exchange of a channel.
func (b bench) exchange(name string) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `update leat.channels set kind = 'exchange', mode = 'fanout' where name = $1`, name)
	require.NoError(b.t, err)
}

// drawn is a family as a tree.
func drawn(l queries.Lineage) string {
	var text strings.Builder
	for _, m := range l.Members {
		fmt.Fprintf(&text, "%s%s %s/%s %s: %s\n", strings.Repeat("  ", m.Depth), m.Cause, m.Channel, m.RoutingKey, m.State, kindsOf(m.Events))
	}
	return text.String()
}

func (b bench) lineage(id eventstore.MessageID) queries.Lineage {
	b.t.Helper()
	l, err := b.Lineage(b.t.Context(), id, queries.LineageFilter{Limit: queries.MaxLimit})
	require.NoError(b.t, err)
	require.Equal(b.t, id, l.MessageID)
	return l
}
