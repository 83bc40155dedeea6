package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Kinds and modes of channels.
const (
	Queue    = "queue"    // the kind: stored, competing consumers, settled one by one
	Stream   = "stream"   // the kind: stored, every consumer reads all of it, in order, at its own place
	Standard = "standard" // the mode: unordered, shared among consumers
	FIFO     = "fifo"     // the mode: in order per routing key, one delivery of a key at a time
	Exchange = "exchange" // the kind: stores nothing, only routes along its links
)

// streamMode is what the database has as the mode of a stream.
const streamMode = "stream"

// Types of exchanges. A type is the rule of all links of the exchange.
const (
	Direct  = "direct"  // MatchExact
	Fanout  = "fanout"  // MatchAll
	Topic   = "topic"   // MatchTopic
	Headers = "headers" // MatchHeaders
)

// Channel is a declared channel.
type Channel struct {
	ID         eventstore.ChannelID
	Name       string
	Kind       string // Queue, Stream or Exchange
	Mode       string // of a queue: Standard or FIFO
	Type       string // of an exchange: Direct, Fanout, Topic or Headers
	Policy     Policy // of a queue; of a stream its DedupWindow and Retention
	DeclaredAt time.Time
	Epoch      eventstore.Position // a channel declared again has another epoch
}

// ChannelSpec is what a declaration asks for. Settings that Policy leaves out
// have their defaults.
type ChannelSpec struct {
	Name   string
	Kind   string // default Queue
	Mode   string // of a queue: default Standard
	Type   string // of an exchange
	Policy PolicyPatch
}

// channelColumns are the columns that scanChannel reads.
const channelColumns = `c.id, c.name, c.kind,
    case when c.kind = 'queue' then c.mode else '' end, case when c.kind = 'exchange' then c.mode else '' end,
    c.lease, c.max_deliveries, c.retry_strategy, c.base_delay, c.max_delay, c.jitter, c.non_retryable, c.dead_letter_expired,
    c.dedup_window, c.priority_ageing, coalesce((select t.name from leat.channels t where t.id = c.dead_letter_to), ''),
    c.dead_letter_retention, c.mode = 'fifo' and c.circuit,
    case when c.mode = 'fifo' then c.circuit_cool_down else '0' end, case when c.mode = 'fifo' then c.circuit_threshold else 0 end,
    c.retention_age, c.retention_bytes, c.retention_messages,
    c.declared_at, leat.epoch_of(c.id, c.epoch)`

func channelFields(c *Channel) []any {
	p := &c.Policy
	return []any{
		&c.ID, &c.Name, &c.Kind, &c.Mode, &c.Type, &p.Lease, &p.MaxDeliveries, &p.Retry.Strategy, &p.Retry.BaseDelay,
		&p.Retry.MaxDelay, &p.Retry.Jitter, &p.NonRetryable, &p.DeadLetterExpired, &p.DedupWindow, &p.PriorityAgeing,
		&p.DeadLetterTo, &p.DeadLetterRetention, &p.Circuit.Enabled, &p.Circuit.CoolDown, &p.Circuit.Threshold,
		&p.Retention.Age, &p.Retention.Bytes, &p.Retention.Messages,
		&c.DeclaredAt, &c.Epoch,
	}
}

const declareChannelSQL = `-- commands.declareChannel
select ` + channelColumns + `, d.created
from leat.declare_channel($1, $2, $3, $4::jsonb, nullif($5, '')) d
cross join lateral (select (d.channel).*) c`

// DeclareChannel makes a channel, or finds that it exists with the same
// settings. Other settings are refused as channel_conflict; the error's Field is
// the first that differs.
func (b *Broker) DeclareChannel(ctx context.Context, actor string, spec ChannelSpec) (Channel, bool, error) {
	leave, err := b.enter()
	if err != nil {
		return Channel{}, false, err
	}
	defer leave()
	return b.declareChannel(ctx, b.cfg.Pool, actor, spec)
}

// DeclareChannelTx is DeclareChannel in a transaction.
func (b *Broker) DeclareChannelTx(ctx context.Context, tx pgx.Tx, actor string, spec ChannelSpec) (Channel, bool, error) {
	return b.declareChannel(ctx, tx, actor, spec)
}

func (b *Broker) declareChannel(ctx context.Context, db querier, actor string, spec ChannelSpec) (c Channel, created bool, err error) {
	if spec.Kind == "" {
		spec.Kind = Queue
	}
	if spec.Mode == "" && spec.Kind == Queue {
		spec.Mode = Standard
	}
	if err := b.checkSpec(actor, spec); err != nil {
		return Channel{}, false, err
	}
	policy, err := spec.Policy.columns()
	if err != nil {
		return Channel{}, false, err
	}
	mode := spec.Mode + spec.Type
	if spec.Kind == Stream {
		mode = streamMode
	}
	err = queryRow(ctx, db, declareChannelSQL, []any{spec.Name, spec.Kind, mode, policy, actor},
		append(channelFields(&c), &created)...)
	return c, created, channelError(err, spec.Kind)
}

func (b *Broker) checkSpec(actor string, spec ChannelSpec) error {
	var f faults
	f.label("actor", actor)
	f.name("name", spec.Name)
	switch spec.Kind {
	case Queue:
		spec.checkQueue(&f, b.cfg.Limits)
	case Stream:
		spec.checkStream(&f)
	case Exchange:
		spec.checkExchange(&f)
	default:
		f.invalid(-1, "kind", "must be %s, %s or %s", Queue, Stream, Exchange)
	}
	return f.err()
}

func (spec ChannelSpec) checkQueue(f *faults, limits Limits) {
	if spec.Mode != Standard && spec.Mode != FIFO {
		f.invalid(-1, "mode", "must be %s or %s", Standard, FIFO)
	}
	if spec.Type != "" {
		f.invalid(-1, "type", "is of exchanges: a queue has a mode")
	}
	spec.Policy.check(f, limits)
	if spec.Policy.Retention != (RetentionPatch{}) {
		f.invalid(-1, "retention", "is of streams: a queue keeps messages until they are settled")
	}
	if spec.Mode == Standard && spec.Policy.Circuit != (CircuitPatch{}) {
		f.invalid(-1, "circuit", "is of FIFO queues: a standard queue has no circuits")
	}
}

func (spec ChannelSpec) checkStream(f *faults) {
	if spec.Mode != "" {
		f.invalid(-1, "mode", "is of queues: a stream has none")
	}
	if spec.Type != "" {
		f.invalid(-1, "type", "is of exchanges: a stream has none")
	}
	spec.Policy.check(f, DefaultLimits())
	for _, field := range spec.Policy.notOfStreams() {
		f.invalid(-1, field, "is of queues: a stream has only a dedupWindow and a retention")
	}
}

func (spec ChannelSpec) checkExchange(f *faults) {
	if spec.Mode != "" {
		f.invalid(-1, "mode", "is of queues: an exchange has a type")
	}
	if !slices.Contains([]string{Direct, Fanout, Topic, Headers}, spec.Type) {
		f.invalid(-1, "type", "must be %s, %s, %s or %s", Direct, Fanout, Topic, Headers)
	}
	if spec.Policy != (PolicyPatch{}) {
		f.invalid(-1, "policy", "is of queues and streams: an exchange takes none")
	}
}

// channelError renames the column that a refusal is about.
func channelError(err error, kind string) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		if field, ok := fieldOf[e.Field]; ok {
			e.Field = field
		}
		if e.Field == "mode" && kind == Exchange {
			e.Field = "type"
		}
	}
	return err
}

const alterChannelSQL = `-- commands.alterChannel
select ` + channelColumns + `
from leat.alter_channel($1, $2::jsonb, nullif($3, '')) c`

// AlterChannel changes settings of a channel's policy. Messages that are
// already delayed or in flight keep their times.
func (b *Broker) AlterChannel(ctx context.Context, actor, name string, patch PolicyPatch) (Channel, error) {
	leave, err := b.enter()
	if err != nil {
		return Channel{}, err
	}
	defer leave()
	return b.alterChannel(ctx, b.cfg.Pool, actor, name, patch)
}

// AlterChannelTx is AlterChannel in a transaction.
func (b *Broker) AlterChannelTx(ctx context.Context, tx pgx.Tx, actor, name string, patch PolicyPatch) (Channel, error) {
	return b.alterChannel(ctx, tx, actor, name, patch)
}

func (b *Broker) alterChannel(ctx context.Context, db querier, actor, name string, patch PolicyPatch) (c Channel, err error) {
	var f faults
	f.label("actor", actor)
	patch.check(&f, b.cfg.Limits)
	if err := f.err(); err != nil {
		return Channel{}, err
	}
	if !validName(name) {
		return Channel{}, channelNotFound(name)
	}
	columns, err := patch.columns()
	if err != nil {
		return Channel{}, err
	}
	err = queryRow(ctx, db, alterChannelSQL, []any{name, columns, actor}, channelFields(&c)...)
	return c, channelError(err, "")
}

const deleteChannelSQL = `-- commands.deleteChannel
select leat.delete_channel($1, $2, nullif($3, ''))`

// DeleteChannel ends a channel; its history stays in the log. A channel that
// holds messages is refused as channel_not_empty, and one that takes the dead
// letters of a queue as channel_in_use, unless force is set. Its links go with it.
func (b *Broker) DeleteChannel(ctx context.Context, actor, name string, force bool) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	return b.deleteChannel(ctx, b.cfg.Pool, actor, name, force)
}

// DeleteChannelTx is DeleteChannel in a transaction.
func (b *Broker) DeleteChannelTx(ctx context.Context, tx pgx.Tx, actor, name string, force bool) error {
	return b.deleteChannel(ctx, tx, actor, name, force)
}

func (b *Broker) deleteChannel(ctx context.Context, db querier, actor, name string, force bool) error {
	var f faults
	f.label("actor", actor)
	if err := f.err(); err != nil {
		return err
	}
	if !validName(name) {
		return channelNotFound(name)
	}
	err := queryRow(ctx, db, deleteChannelSQL, []any{name, force, actor})
	b.channels.forget(name)
	return err
}
