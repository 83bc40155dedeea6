package commands

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Kinds and modes of channels.
const (
	Queue    = "queue"    // the kind: stored, competing consumers, settled one by one
	Standard = "standard" // the mode: unordered, shared among consumers
	FIFO     = "fifo"     // the mode: in order per routing key, one delivery of a key at a time
)

// Channel is a declared channel.
type Channel struct {
	ID         eventstore.ChannelID
	Name       string
	Kind       string // Queue
	Mode       string // Standard or FIFO
	Policy     Policy
	DeclaredAt time.Time
	Epoch      eventstore.Position // a channel declared again has another epoch
}

// ChannelSpec is what a declaration asks for. Settings that Policy leaves out
// have their defaults.
type ChannelSpec struct {
	Name   string
	Kind   string // default Queue
	Mode   string // default Standard
	Policy PolicyPatch
}

// channelColumns are the columns that scanChannel reads.
const channelColumns = `c.id, c.name, c.kind, c.mode, c.lease, c.max_deliveries, c.retry_strategy, c.base_delay, c.max_delay,
    c.jitter, c.non_retryable, c.dead_letter_expired, c.dedup_window, c.priority_ageing, c.declared_at, c.epoch`

func channelFields(c *Channel) []any {
	p := &c.Policy
	return []any{
		&c.ID, &c.Name, &c.Kind, &c.Mode, &p.Lease, &p.MaxDeliveries, &p.Retry.Strategy, &p.Retry.BaseDelay,
		&p.Retry.MaxDelay, &p.Retry.Jitter, &p.NonRetryable, &p.DeadLetterExpired, &p.DedupWindow, &p.PriorityAgeing,
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
	if spec.Mode == "" {
		spec.Mode = Standard
	}
	if err := b.checkSpec(actor, spec); err != nil {
		return Channel{}, false, err
	}
	policy, err := spec.Policy.columns()
	if err != nil {
		return Channel{}, false, err
	}
	err = queryRow(ctx, db, declareChannelSQL, []any{spec.Name, spec.Kind, spec.Mode, policy, actor},
		append(channelFields(&c), &created)...)
	return c, created, channelError(err)
}

func (b *Broker) checkSpec(actor string, spec ChannelSpec) error {
	var f faults
	f.text(-1, "actor", actor, maxLabel)
	f.name("name", spec.Name)
	if spec.Kind != Queue {
		f.invalid(-1, "kind", "must be %s", Queue)
	}
	if spec.Mode != Standard && spec.Mode != FIFO {
		f.invalid(-1, "mode", "must be %s or %s", Standard, FIFO)
	}
	spec.Policy.check(&f, b.cfg.Limits)
	return f.err()
}

// channelError renames the column that a conflict is about.
func channelError(err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		if field, ok := fieldOf[e.Field]; ok {
			e.Field = field
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
	f.text(-1, "actor", actor, maxLabel)
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
	return c, channelError(err)
}

const deleteChannelSQL = `-- commands.deleteChannel
select leat.delete_channel($1, $2, nullif($3, ''))`

// DeleteChannel ends a channel; its history stays in the log. A channel that
// holds messages is refused as channel_not_empty unless force is set.
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
	f.text(-1, "actor", actor, maxLabel)
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
