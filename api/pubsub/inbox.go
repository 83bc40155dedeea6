package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InboxConfig says where an inbox is.
type InboxConfig struct {
	// Table is that of the messages that took effect, with or without a schema:
	// several consumers may share it. Default leat_inbox.
	Table string
	// Consumer is whose effects they are: each handler of the same messages needs a
	// name of its own.
	Consumer string
	// ID is what tells messages apart, up to 1,000 bytes. Default: the UUID, which
	// Watermill's publishers draw; where there is none, Leat's id of the message.
	ID func(msg *message.Message) (string, error)
}

// Inbox lets messages take effect in a PostgreSQL database exactly once, however
// often they come: the effect and a row with the id of the message are one
// transaction.
type Inbox struct {
	pool     *pgxpool.Pool
	table    string // quoted
	consumer string
	id       func(*message.Message) (string, error)
}

// NewInbox makes an inbox in the database where the effects are. Create makes
// its table.
func NewInbox(pool *pgxpool.Pool, config InboxConfig) (*Inbox, error) {
	switch {
	case pool == nil:
		return nil, errors.New("new inbox: there is no pool")
	case config.Consumer == "":
		return nil, errors.New("new inbox: the consumer has no name")
	case config.Table == "":
		config.Table = "leat_inbox"
	}
	if config.ID == nil {
		config.ID = idOf
	}
	table := pgx.Identifier(strings.Split(config.Table, ".")).Sanitize()
	return &Inbox{pool: pool, table: table, consumer: config.Consumer, id: config.ID}, nil
}

func idOf(msg *message.Message) (string, error) {
	if msg.UUID != "" {
		return msg.UUID, nil
	}
	if received, ok := FromContext(msg.Context()); ok {
		return received.MessageID.String(), nil
	}
	return "", errors.New("the message has neither a UUID nor an id of Leat")
}

// Create makes the table, unless it is there.
func (b *Inbox) Create(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `-- pubsub.create_inbox
		create table if not exists `+b.table+` (
			consumer text not null,
			message text not null,
			at timestamptz not null default clock_timestamp(),
			primary key (consumer, message)
		)`)
	if err != nil {
		return fmt.Errorf("create inbox %s: %w", b.table, err)
	}
	return nil
}

// Handler is a handler for Watermill's router. It calls handle with a
// transaction that it commits, unless the message took effect before; an error
// undoes everything.
func (b *Inbox) Handler(handle func(msg *message.Message, tx pgx.Tx) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			first, err := b.EnterTx(ctx, tx, msg)
			if err != nil || !first {
				return err
			}
			return handle(msg, tx)
		})
	}
}

// EnterTx notes that the message takes effect with the caller's transaction, and
// reports whether it does so for the first time. While another transaction does
// so, it waits for that to end.
func (b *Inbox) EnterTx(ctx context.Context, tx pgx.Tx, msg *message.Message) (first bool, err error) {
	id, err := b.id(msg)
	if err != nil {
		return false, fmt.Errorf("enter inbox %s: %w", b.table, err)
	}
	tag, err := tx.Exec(ctx, `-- pubsub.enter_inbox
		insert into `+b.table+` (consumer, message) values ($1, $2) on conflict do nothing`, b.consumer, id)
	if err != nil {
		return false, fmt.Errorf("enter inbox %s: %w", b.table, err)
	}
	return tag.RowsAffected() == 1, nil
}

// Prune forgets the messages of this consumer that took effect so long ago, and
// answers how many. One of them that came again would take effect again: keep
// more than the longest time between two deliveries.
func (b *Inbox) Prune(ctx context.Context, age time.Duration) (int64, error) {
	tag, err := b.pool.Exec(ctx, `-- pubsub.prune_inbox
		delete from `+b.table+` where consumer = $1 and at < clock_timestamp() - $2::interval`, b.consumer,
		pgtype.Interval{Microseconds: age.Microseconds(), Valid: true})
	if err != nil {
		return 0, fmt.Errorf("prune inbox %s: %w", b.table, err)
	}
	return tag.RowsAffected(), nil
}
