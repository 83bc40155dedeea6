package queries_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// picture is what all the queries said at some moment.
type picture struct {
	Channels []queries.ChannelStatus
	Messages map[string][]queries.Message
	Dead     map[string][]queries.Message
	Circuits []queries.Circuit
	States   map[string]queries.State
}

// ids of the messages that the pictures look at one by one.
const watched = 12

func (b bench) picture(m *queries.Moment, watch []eventstore.MessageID) picture {
	b.t.Helper()
	ctx := b.t.Context()
	p := picture{Messages: map[string][]queries.Message{}, Dead: map[string][]queries.Message{}, States: map[string]queries.State{}}
	var err error
	if m == nil {
		p.Channels, err = b.Channels(ctx)
	} else {
		p.Channels, err = b.ChannelsAsOf(ctx, *m)
	}
	require.NoError(b.t, err)
	for i := range p.Channels {
		p.Channels[i].OldestReadyAge = 0
		if name := p.Channels[i].Name; p.Channels[i].Kind == "queue" {
			p.Messages[name], _, err = b.Messages(ctx, name, queries.MessagesFilter{Limit: queries.MaxLimit, WithPayload: true, AsOf: m})
			require.NoError(b.t, err)
			p.Dead[name], _, err = b.DeadLetters(ctx, name, queries.DeadLettersFilter{Limit: queries.MaxLimit, AsOf: m})
			require.NoError(b.t, err)
		}
	}
	p.Circuits, _, err = b.Circuits(ctx, queries.CircuitsFilter{AsOf: m})
	require.NoError(b.t, err)
	for i := range p.Circuits {
		p.Circuits[i].Admitted, p.Circuits[i].ChangedAt, p.Circuits[i].OpenedAt = nil, time.Time{}, time.Time{} // by the clock of a later statement
	}
	for _, id := range watch {
		var message queries.Message
		if m == nil {
			message, err = b.Message(ctx, id)
		} else {
			message, err = b.MessageAsOf(ctx, id, *m)
		}
		p.States[id.String()] = message.State
		if err != nil {
			p.States[id.String()] = queries.State(code(err))
		}
	}
	return p
}

// G1: whatever commands come, every query of the past, by position and by time, says
// what the same query of the present said then: also of names that another channel
// has by now.
func TestG1AsOfIsWhatWasThen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := rand.New(rand.NewPCG(5, 17))
	policy := commands.PolicyPatch{MaxDeliveries: new(2), Retry: commands.RetryPatch{BaseDelay: new(time.Hour), MaxDelay: new(time.Hour)}}
	queues := []string{"s", "f"}
	declare := func(name string) {
		b.declare(name, commands.ChannelSpec{Mode: map[string]string{"s": commands.Standard, "f": commands.FIFO}[name], Policy: policy})
	}
	declare("s")
	declare("f")
	_, err := b.pool.Exec(t.Context(), `select leat.make_partitions(256)`)
	require.NoError(t, err)
	var (
		watch    []eventstore.MessageID
		moments  []queries.Moment
		pictures []picture
	)
	look := func() {
		var m queries.Moment
		require.NoError(t, b.pool.QueryRow(t.Context(), `select leat.settled_position(), clock_timestamp()`).Scan(&m.Position, &m.At))
		moments = append(moments, m)
		pictures = append(pictures, b.picture(nil, watch))
	}
	for step := range 60 {
		queue := queues[random.IntN(2)]
		receipts := func() []string {
			deliveries, err := b.broker.Poll(t.Context(), commands.PollRequest{Queue: queue, Consumer: "worker", Max: 1 + random.IntN(4)})
			require.NoError(t, err)
			list := []string{}
			for _, d := range deliveries {
				list = append(list, d.Receipt.String())
			}
			return list
		}
		switch random.IntN(10) {
		case 0, 1, 2:
			messages := numbered(1 + random.IntN(5))
			for i := range messages {
				messages[i].RoutingKey = fmt.Sprint("k", random.IntN(3))
			}
			if published := b.publish(queue, messages...); len(watch) < watched {
				watch = append(watch, published[0])
			}
		case 3, 4, 5:
			if list := receipts(); len(list) == 0 {
				continue
			} else if action := []string{"deadLetter", "retry", "discard"}[random.IntN(3)]; action == "discard" {
				b.ack(queue, list)
			} else {
				b.nack(queue, list, action, "no")
			}
		case 6:
			receipts()
		case 7:
			_, err = b.pool.Exec(t.Context(), `select leat.recover_all($1)`, queue)
			require.NoError(t, err)
		case 8:
			_, err = b.pool.Exec(t.Context(), `select leat.close_circuit('f', 'k1', true), leat.checkpoint(0)`)
			require.NoError(t, err)
		default:
			if step%3 == 0 {
				require.NoError(t, b.broker.DeleteChannel(t.Context(), "test", queue, true))
				look()
				declare(queue)
			} else {
				_, err = b.broker.AlterChannel(t.Context(), "test", queue, commands.PolicyPatch{MaxDeliveries: new(2 + step)})
				require.NoError(t, err)
			}
		}
		if step%4 == 0 {
			look()
		}
	}
	for i, want := range pictures {
		byPosition, err := b.MomentAt(t.Context(), moments[i].Position)
		require.NoError(t, err)
		byTime, err := b.MomentOf(t.Context(), moments[i].At)
		require.NoError(t, err)
		require.Equal(t, moments[i].Position, byTime.Position)
		for _, m := range []queries.Moment{byPosition, byTime} {
			known := make([]eventstore.MessageID, 0, watched)
			for _, id := range watch {
				if _, ok := want.States[id.String()]; ok {
					known = append(known, id)
				}
			}
			wanted, err := json.MarshalIndent(want, "", " ")
			require.NoError(t, err)
			got, err := json.MarshalIndent(b.picture(&m, known), "", " ")
			require.NoError(t, err)
			require.Equal(t, string(wanted), string(got), "as of %d of %d", m.Position, i)
		}
	}
}

// What the past cannot tell is refused, and says why.
func TestAsOfAtTheEdges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	before := time.Now()
	b.declare("q", commands.ChannelSpec{})
	b.declare("s", commands.ChannelSpec{Kind: "stream"})
	published := b.publish("q", commands.Message{Payload: []byte("1"), Delay: 50 * time.Millisecond}, commands.Message{Payload: []byte("2"), TTL: time.Hour})
	id := eventstore.Position(published[1])

	_, err := b.MomentAt(ctx, id+1)
	require.Equal(t, eventstore.PositionAhead, code(err))
	_, err = b.MomentOf(ctx, time.Now().Add(time.Minute))
	require.Equal(t, eventstore.PositionAhead, code(err))
	open, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.publish('q', '3')`)
	require.NoError(t, err)
	b.publish("q", numbered(1)...)
	_, err = b.MomentAt(ctx, id+2)
	require.Equal(t, eventstore.PositionAhead, code(err), "not settled")
	require.NoError(t, open.Rollback(ctx))
	_, err = b.MomentAt(ctx, id+2)
	require.NoError(t, err)

	first, err := b.MomentOf(ctx, before.Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, first.Position)
	channels, err := b.ChannelsAsOf(ctx, first)
	require.NoError(t, err)
	require.Empty(t, channels)
	_, _, err = b.Messages(ctx, "q", queries.MessagesFilter{AsOf: &first})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.Circuits(ctx, queries.CircuitsFilter{Channel: "q", AsOf: &first})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, err = b.MessageAsOf(ctx, published[0], first)
	require.Equal(t, eventstore.MessageNotFound, code(err))

	then, err := b.MomentAt(ctx, id)
	require.NoError(t, err)
	_, err = b.ChannelAsOf(ctx, "s", then)
	require.Equal(t, eventstore.InvalidField, code(err))
	_, _, err = b.Messages(ctx, "s", queries.MessagesFilter{AsOf: &then})
	require.Equal(t, eventstore.ChannelNotFound, code(err))

	// Delayed at the position, ready a while later, though nothing was appended.
	states := func(m queries.Moment) (list []queries.State) {
		page, _, err := b.Messages(ctx, "q", queries.MessagesFilter{AsOf: &m, Limit: 2})
		require.NoError(t, err)
		for _, message := range page {
			list = append(list, message.State)
		}
		return list
	}
	require.Equal(t, []queries.State{queries.Delayed, queries.Ready}, states(then))
	require.Equal(t, []queries.State{queries.Ready, queries.Ready}, states(queries.Moment{Position: id, At: then.At.Add(time.Minute)}))
	one, err := b.MessageAsOf(ctx, published[0], then)
	require.NoError(t, err)
	require.Equal(t, queries.Delayed, one.State)
}

// The past of a queue in pages is the past of the queue.
func TestAsOfInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	stir(b, "q")
	all, _, err := b.Messages(t.Context(), "q", queries.MessagesFilter{Limit: queries.MaxLimit})
	require.NoError(t, err)
	settled, err := eventstore.New(b.pool).SettledPosition(t.Context())
	require.NoError(t, err)
	b.ack("q", b.poll("q", 5))
	m, err := b.MomentAt(t.Context(), settled)
	require.NoError(t, err)
	var seen []eventstore.MessageID
	for f := (queries.MessagesFilter{AsOf: &m, Limit: 7}); ; {
		page, next, err := b.Messages(t.Context(), "q", f)
		require.NoError(t, err)
		seen = append(seen, ids(page)...)
		if f.Cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, ids(all), seen)
}

// Where old partitions have left the log, the past is known from the checkpoint on, of
// younger channels from their beginning; before, the answer is that it is gone.
func TestAsOfWhereTheLogIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	exec := func(sql string) {
		_, err := b.pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	exec(`select leat.make_partitions(1024)`)
	b.declare("q", commands.ChannelSpec{})
	b.declare("gone", commands.ChannelSpec{})
	b.publish("q", numbered(1)...)
	b.ack("q", b.poll("q", 1))
	require.NoError(t, b.broker.DeleteChannel(ctx, "test", "gone", false))
	exec(`insert into leat.events (kind, channel_id, payload) select 'message.published', 1000, 'x' from generate_series(1, 2048)`)
	exec(`select leat.make_partitions(1024)`)
	b.declare("young", commands.ChannelSpec{})
	then := eventstore.Position(b.publish("young", numbered(1)...)[0])
	b.publish("young", numbered(1)...)
	exec(`select leat.checkpoint(0)`)
	last := eventstore.Position(b.publish("q", numbered(1)...)[0])
	begin, err := (&eventstore.Retention{Store: eventstore.New(b.pool), Age: time.Nanosecond}).Drop(ctx)
	require.NoError(t, err)
	require.Greater(t, begin, eventstore.Position(1024))

	_, err = b.MomentAt(ctx, 1000)
	require.Equal(t, eventstore.EventsGone, code(err))
	_, err = b.MomentOf(ctx, time.Now().Add(-time.Hour))
	require.Equal(t, eventstore.EventsGone, code(err))

	early, err := b.MomentAt(ctx, then)
	require.NoError(t, err)
	_, err = b.ChannelAsOf(ctx, "q", early)
	require.Equal(t, eventstore.EventsGone, code(err))
	_, _, err = b.Messages(ctx, "q", queries.MessagesFilter{AsOf: &early})
	require.Equal(t, eventstore.EventsGone, code(err))
	_, err = b.ChannelsAsOf(ctx, early)
	require.Equal(t, eventstore.EventsGone, code(err))
	young, err := b.ChannelAsOf(ctx, "young", early)
	require.NoError(t, err)
	require.EqualValues(t, 1, young.Ready)

	late, err := b.MomentAt(ctx, last)
	require.NoError(t, err)
	channels, err := b.ChannelsAsOf(ctx, late)
	require.NoError(t, err)
	require.Len(t, channels, 2)
	require.EqualValues(t, 1, channels[0].Ready)
	_, err = b.ChannelAsOf(ctx, "gone", late)
	require.Equal(t, eventstore.ChannelNotFound, code(err))

	// What it was declared with has left the log, and it has other settings now.
	_, err = b.broker.AlterChannel(ctx, "test", "q", commands.PolicyPatch{Lease: new(time.Minute)})
	require.NoError(t, err)
	var altered eventstore.Position
	require.NoError(t, b.pool.QueryRow(ctx, `select max(position) from leat.events where kind = 'channel.altered'`).Scan(&altered))
	_, err = b.ChannelsAsOf(ctx, late)
	require.Equal(t, eventstore.EventsGone, code(err))
	_, err = b.ChannelAsOf(ctx, "q", late)
	var refused *eventstore.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []any{eventstore.EventsGone, altered}, []any{refused.Code, refused.First})
	_, _, err = b.Messages(ctx, "q", queries.MessagesFilter{AsOf: &late})
	require.NoError(t, err)
	_, err = b.ChannelAsOf(ctx, "young", late)
	require.NoError(t, err)
	now, err := b.MomentAt(ctx, altered)
	require.NoError(t, err)
	changed, err := b.ChannelAsOf(ctx, "q", now)
	require.NoError(t, err)
	require.Equal(t, time.Minute, changed.Lease)
}
