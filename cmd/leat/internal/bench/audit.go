package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"leat/commands"
	"leat/eventstore"
)

const (
	// pastBatch is how many messages of the past were delivered and settled at once.
	pastBatch = 100
	// pastChunk is how many batches are written in one transaction.
	pastChunk = 1000
	// pastMessages of each kind are looked at one by one.
	pastMessages = 5
)

// past is a log with a history, in a database of its own. It is made when it is
// needed first.
type past struct {
	bed    *bed // nil: not made yet
	queue  string
	last   eventstore.Position // of what was made
	events int                 // up to there
	// messages by what became of them.
	messages map[string][]eventstore.MessageID
}

// What became of messages.
const (
	settledFirst = "old"       // at the beginning of the log
	settledLast  = "new"       // at its end
	died         = "dead"      // at the beginning
	waits        = "unsettled" // since the beginning
	copied       = "copy"      // by an exchange, at the beginning
)

// auditWorks are the cases of reading the log: it as a whole, parts of it, single
// messages, and what goes along with it.
func (l *lab) auditWorks() []work {
	p := &past{}
	works := []work{
		{name: "audit/rebuild", sides: []side{{name: leat, take: l.inPast(p, l.rebuildPast)}}},
		{name: "audit/as-of", sides: []side{{name: leat, take: l.inPast(p, l.asOf)}}},
		{name: "audit/replay", sides: []side{
			{name: "copy", take: l.inPast(p, l.copyPast)},
			{name: leat, take: l.inPast(p, l.replayPast)},
		}},
		{name: "audit/message"},
	}
	for _, kind := range []string{settledFirst, settledLast, died, waits, copied} {
		works[3].sides = append(works[3].sides, side{
			name:  kind,
			label: fmt.Sprintf("%s, of %d", kind, l.pastEvents()),
			take: l.inPast(p, func(ctx context.Context, c *clock, p *past) (tally, error) {
				return l.lookAt(ctx, c, p, kind)
			}),
		})
	}
	works = append(works, l.chainWorks()...)
	works = append(works, l.besideWorks()...)
	return append(works, l.republishWorks()...)
}

// pastEvents is about how many events the log of the past has.
func (l *lab) pastEvents() int { return max(MinEvents/10, l.cfg.Events/l.cfg.Scale) }

// inPast makes the past before the first sample.
func (l *lab) inPast(p *past, take func(ctx context.Context, c *clock, p *past) (tally, error),
) func(context.Context, *clock) (tally, error) {
	return func(ctx context.Context, c *clock) (tally, error) {
		if p.bed == nil {
			made, err := l.makePast(ctx)
			if err != nil {
				return tally{}, fmt.Errorf("make a past: %w", err)
			}
			*p = *made
		}
		return take(ctx, c, p)
	}
}

// serve starts the broker, which the cases before go without: it would write
// checkpoints.
func (p *past) serve(ctx context.Context) error {
	if p.bed.client != nil {
		return nil
	}
	return p.bed.serve(ctx)
}

// makePast fills a log: first some messages by commands, of which something is known,
// then batches that were published, delivered and settled, which are written into the
// log alone. No view would know of them.
func (l *lab) makePast(ctx context.Context) (*past, error) {
	p := &past{messages: map[string][]eventstore.MessageID{}}
	b, err := l.newDatabase(ctx, Parts{})
	if err != nil {
		return nil, err
	}
	if p.queue, err = declare(ctx, b, commands.Standard); err != nil {
		return nil, err
	}
	if err := l.beginPast(ctx, b, p); err != nil {
		return nil, err
	}
	batches := l.pastEvents() / (pastBatch + 2)
	first, last, err := l.fillPast(ctx, b, p.queue, batches)
	if err != nil {
		return nil, err
	}
	for i := range pastMessages {
		p.messages[settledFirst] = append(p.messages[settledFirst], eventstore.MessageID(first)+eventstore.MessageID(i))
		p.messages[settledLast] = append(p.messages[settledLast], eventstore.MessageID(last)-eventstore.MessageID(pastBatch-i))
	}
	p.last = last
	if err := b.node.Pool.QueryRow(ctx, countEventsSQL, last).Scan(&p.events); err != nil {
		return nil, fmt.Errorf("count events: %w", err)
	}
	p.bed = b
	return p, b.settle(ctx)
}

const countEventsSQL = `-- bench.countEvents
select count(*)
from leat.events e
where e.position <= $1`

// beginPast publishes what dies, is copied, and waits for ever.
func (l *lab) beginPast(ctx context.Context, b *bed, p *past) (err error) {
	if p.messages[died], err = l.publishSome(ctx, b, p.queue); err != nil {
		return err
	}
	got, err := takeSome(ctx, b, p.queue)
	if err != nil {
		return err
	}
	result, err := b.node.Commands.Nack(ctx, commands.NackRequest{SettleRequest: got.settling(p.queue), Action: commands.DeadLetterAction})
	if err != nil || result.Settled != pastMessages {
		return fmt.Errorf("nack: settled %d of %d: %w", result.Settled, pastMessages, err)
	}
	if p.messages[copied], err = l.copySome(ctx, b, p.queue+"-to-all"); err != nil {
		return err
	}
	p.messages[waits], err = l.publishSome(ctx, b, p.queue)
	return err
}

// copySome publishes through an exchange into three queues, and settles the copies of
// one: it answers their ids.
func (l *lab) copySome(ctx context.Context, b *bed, exchange string) ([]eventstore.MessageID, error) {
	broker := b.node.Commands
	if _, _, err := broker.DeclareChannel(ctx, actor, commands.ChannelSpec{
		Name: exchange, Kind: commands.Exchange, Type: commands.Fanout,
	}); err != nil {
		return nil, fmt.Errorf("declare exchange: %w", err)
	}
	var target string
	for range 3 {
		var err error
		if target, err = declare(ctx, b, commands.Standard); err != nil {
			return nil, err
		}
		if _, _, err := broker.DeclareLink(ctx, actor, commands.LinkSpec{Source: exchange, Target: target}); err != nil {
			return nil, fmt.Errorf("declare link: %w", err)
		}
	}
	if _, err := l.publishSome(ctx, b, exchange); err != nil {
		return nil, err
	}
	got, err := takeSome(ctx, b, target)
	if err != nil {
		return nil, err
	}
	result, err := broker.Ack(ctx, got.settling(target))
	if err != nil || result.Settled != pastMessages {
		return nil, fmt.Errorf("ack: settled %d of %d: %w", result.Settled, pastMessages, err)
	}
	ids := make([]eventstore.MessageID, len(got))
	for i := range got {
		ids[i] = got[i].MessageID
	}
	return ids, nil
}

// publishSome publishes a few messages, and answers their ids.
func (l *lab) publishSome(ctx context.Context, b *bed, channel string) (ids []eventstore.MessageID, err error) {
	cards := deck{keys: l.keys, payload: l.payload(0)}
	published, err := b.node.Commands.Publish(ctx, commands.PublishRequest{Channel: channel, Actor: actor, Messages: cards.deal(pastMessages)})
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	for i := range published.Messages {
		ids = append(ids, published.Messages[i].MessageID)
	}
	return ids, nil
}

// taken is what was polled.
type taken []commands.Delivery

// takeSome polls what publishSome published.
func takeSome(ctx context.Context, b *bed, queue string) (taken, error) {
	got, err := b.node.Commands.Poll(ctx, commands.PollRequest{Queue: queue, Consumer: actor, Max: pastMessages})
	if err == nil && len(got) != pastMessages {
		err = fmt.Errorf("%w: polled %d of %d", errCount, len(got), pastMessages)
	}
	if err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	return got, nil
}

func (t taken) settling(queue string) commands.SettleRequest {
	request := commands.SettleRequest{Queue: queue, Actor: actor}
	for i := range t {
		request.Receipts = append(request.Receipts, t[i].Receipt.String())
	}
	return request
}

const drawPastSQL = `-- bench.drawPast
select setval('leat.position_seq', s.last_value + $1) - $1 + 1
from leat.position_seq s`

// What publish, poll and ack write, of batches.
const fillPastSQL = `-- bench.fillPast
insert into leat.events (position, kind, channel_id, routing_key, actor, delivery, due_at, message_ids, payload)
select b.first + i.n,
       case i.n - $3 when 0 then 'message.delivered' when 1 then 'message.acked' else 'message.published' end::leat.event_kind,
       leat.queue_id($4),
       case when i.n < $3 then ($5::text[])[1 + (b.n * $3 + i.n) % cardinality($5::text[])] end,
       $6,
       case when i.n >= $3 then b.first + $3 end,
       case when i.n = $3 then clock_timestamp() + interval '30 s' end,
       case when i.n >= $3 then array(select generate_series(b.first, b.first + $3 - 1)) end,
       case when i.n < $3 then $7::bytea end
from (select n, $1::bigint + n * ($3::integer + 2) as first from generate_series(0, $2::integer - 1) n) b
cross join generate_series(0, $3::integer + 1) i (n)`

const vacuumPastSQL = `-- bench.vacuumPast
vacuum (analyze) leat.events`

// fillPast appends batches of messages that were published, delivered and acked. The
// database is nobody else's.
func (l *lab) fillPast(ctx context.Context, b *bed, queue string, batches int) (first, last eventstore.Position, err error) {
	store := eventstore.New(b.node.Pool)
	for left := batches; left > 0; left -= pastChunk {
		if err := store.MakePartitions(ctx); err != nil {
			return 0, 0, fmt.Errorf("make partitions: %w", err)
		}
		n := min(left, pastChunk)
		var begin eventstore.Position
		err := pgx.BeginFunc(ctx, b.node.Pool, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, drawPastSQL, n*(pastBatch+2)).Scan(&begin); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, fillPastSQL, begin, n, pastBatch, queue, l.keys, actor, l.payload(0))
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("fill the log: %w", err)
		}
		if first == 0 {
			first = begin
		}
		last = begin + eventstore.Position(n*(pastBatch+2)) - 1
	}
	_, err = b.node.Pool.Exec(ctx, vacuumPastSQL)
	return first, last, err
}

// auditAims are those of the audit.
func auditAims() []aim {
	aims := []aim{
		{name: "events/s, to a pipe", in: "audit/replay", figure: rate, want: 200_000},
		{name: "MB/s", in: "audit/chain", of: verified, figure: megabytes, want: 100},
		{name: "messages/s", in: "audit/projections", figure: rate, want: steadyRate * 0.97},
		{name: "lag at the end, ms", in: "audit/projections", figure: lagMillis, want: 1000, atMost: true},
		{name: "CPU over that without, % of a processor", in: "audit/projections", to: without, over: true, figure: processor, want: 15, atMost: true},
		{name: "p50 of a publish, to that without", in: "audit/sealing", to: without, figure: millisAt(50), want: 1.2, atMost: true},
	}
	for _, kind := range []string{settledFirst, settledLast, died, waits, copied} {
		aims = append(aims, aim{name: "p99, ms", in: "audit/message", of: kind, figure: millisAt(99), want: 100, atMost: true})
	}
	return aims
}
