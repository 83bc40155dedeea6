package commands

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RelaySpec declares a relay: the rows of a table that Watermill's SQL publisher
// writes become messages of a channel, each exactly once.
type RelaySpec struct {
	Name    string
	Schema  string        // of the table; default where the broker's role finds it, or public
	Table   string        // watermill_<topic> where nobody chose another name
	Channel string        // that exists
	Key     string        // metadata whose value is the routing key; default none
	Remove  bool          // delete the rows that were moved
	Every   time.Duration // between two looks at the table; default 1 s
	Latest  bool          // leave out what is there already
}

// Bounds of how often a relay looks.
const (
	relayEvery    = time.Second
	relayEveryMin = 10 * time.Millisecond
	relayEveryMax = time.Hour
	maxRelayName  = 200 // bytes: the actor of its messages has a prefix
)

const declareRelaySQL = `-- commands.declareRelay
select leat.declare_relay($1, coalesce(nullif($2, ''), (
    select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(quote_ident($3))
), 'public'), $3, $4, $5, $6, $7, $8, nullif($9, ''))`

// DeclareRelay makes a relay, or finds that it exists with the same settings;
// other ones are relay_conflict. It waits for those who write to the table, and
// answers busy when that takes long.
func (b *Broker) DeclareRelay(ctx context.Context, actor string, spec RelaySpec) (created bool, err error) {
	leave, err := b.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	return b.declareRelay(ctx, b.cfg.Pool, actor, spec)
}

// DeclareRelayTx is DeclareRelay in a transaction. Until it ends nobody writes to
// the table.
func (b *Broker) DeclareRelayTx(ctx context.Context, tx pgx.Tx, actor string, spec RelaySpec) (created bool, err error) {
	return b.declareRelay(ctx, tx, actor, spec)
}

func (b *Broker) declareRelay(ctx context.Context, db querier, actor string, spec RelaySpec) (created bool, err error) {
	if spec.Every == 0 {
		spec.Every = relayEvery
	}
	if err := checkRelay(actor, spec); err != nil {
		return false, err
	}
	err = queryRow(ctx, db, declareRelaySQL,
		[]any{spec.Name, spec.Schema, spec.Table, spec.Channel, spec.Key, spec.Remove, span(spec.Every), spec.Latest, actor}, &created)
	return created, err
}

func checkRelay(actor string, spec RelaySpec) error {
	var f faults
	f.label("actor", actor)
	f.name("name", spec.Name)
	f.text(-1, "name", spec.Name, maxRelayName)
	f.text(-1, "schema", spec.Schema, maxLabel)
	f.text(-1, "table", spec.Table, maxLabel)
	f.name("channel", spec.Channel)
	f.text(-1, "key", spec.Key, maxLabel)
	if spec.Table == "" {
		f.invalid(-1, "table", "is missing")
	}
	if spec.Every < relayEveryMin || spec.Every > relayEveryMax {
		f.invalid(-1, "every", "must be 10ms to 1h")
	}
	return f.err()
}

// checkRelayName checks what the database could not even take.
func checkRelayName(actor, name string) error {
	var f faults
	f.label("actor", actor)
	f.text(-1, "name", name, maxRelayName)
	return f.err()
}

const deleteRelaySQL = `-- commands.deleteRelay
select leat.delete_relay($1, nullif($2, ''))`

// DeleteRelay deletes a relay, and with it how far it was; the table and the
// channel stay as they are.
func (b *Broker) DeleteRelay(ctx context.Context, actor, name string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	return b.deleteRelay(ctx, b.cfg.Pool, actor, name)
}

// DeleteRelayTx is DeleteRelay in a transaction.
func (b *Broker) DeleteRelayTx(ctx context.Context, tx pgx.Tx, actor, name string) error {
	return b.deleteRelay(ctx, tx, actor, name)
}

func (*Broker) deleteRelay(ctx context.Context, db querier, actor, name string) error {
	if err := checkRelayName(actor, name); err != nil {
		return err
	}
	return queryRow(ctx, db, deleteRelaySQL, []any{name, actor})
}

const skipRelaySQL = `-- commands.skipRelay
select leat.skip_relay($1, $2, nullif($3, ''))`

// SkipRelay leaves out the next row, which must have this offset; a relay that
// deletes rows deletes it. It is for a row that no channel takes, which the relay
// stops at.
func (b *Broker) SkipRelay(ctx context.Context, actor, name string, offset int64) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	return b.skipRelay(ctx, b.cfg.Pool, actor, name, offset)
}

// SkipRelayTx is SkipRelay in a transaction.
func (b *Broker) SkipRelayTx(ctx context.Context, tx pgx.Tx, actor, name string, offset int64) error {
	return b.skipRelay(ctx, tx, actor, name, offset)
}

func (*Broker) skipRelay(ctx context.Context, db querier, actor, name string, offset int64) error {
	if err := checkRelayName(actor, name); err != nil {
		return err
	}
	return queryRow(ctx, db, skipRelaySQL, []any{name, offset, actor})
}
