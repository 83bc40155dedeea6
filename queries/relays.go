package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// RelayLagMax is the most rows that are counted as waiting; it stands for more.
const RelayLagMax = 10_000

// Relay moves the rows of a table into a channel.
type Relay struct {
	Name       string
	Table      string // with its schema, quoted where it has to be
	Channel    string
	Key        string // metadata whose value is the routing key; "" is none
	Remove     bool
	Every      time.Duration
	Moved      int64
	MovedAt    *time.Time // nil: none yet
	Lag        int64      // rows that wait, at most RelayLagMax
	RestoredAt *time.Time // when the place was taken anew; nil: never
	Failure    string     // why it does not go on; "": it does
	FailedAt   *time.Time
	DeclaredAt time.Time
}

const relayColumns = `
select r.name,
       r.source,
       r.channel,
       r.key,
       r.remove,
       r.every,
       r.moved,
       r.moved_at,
       leat.relay_lag(r, 10000),
       r.restored_at,
       coalesce(r.failure, ''),
       r.failed_at,
       r.declared_at
from leat.relays r`

const relaysSQL = `-- queries.Relays` + relayColumns + `
order by r.name`

// Relays lists all relays by name.
func (q *Queries) Relays(ctx context.Context) ([]Relay, error) {
	relays, err := collect(ctx, q.pool, scanRelay, relaysSQL)
	return relays, wrap(err, "list relays")
}

const relaySQL = `-- queries.Relay` + relayColumns + `
where r.name = $1`

// Relay looks at a relay.
func (q *Queries) Relay(ctx context.Context, name string) (Relay, error) {
	none := eventstore.NewError(eventstore.RelayNotFound, "There is no relay %q.", name)
	if checkText("relay", name) != nil {
		return Relay{}, none
	}
	rows, err := q.pool.Query(ctx, relaySQL, name)
	if err != nil {
		return Relay{}, wrap(err, "look at relay %s", name)
	}
	relay, err := one(rows, scanRelay, none)
	return relay, wrap(err, "look at relay %s", name)
}

func scanRelay(row pgx.CollectableRow) (r Relay, err error) {
	err = row.Scan(&r.Name, &r.Table, &r.Channel, &r.Key, &r.Remove, &r.Every, &r.Moved, &r.MovedAt, &r.Lag, &r.RestoredAt,
		&r.Failure, &r.FailedAt, &r.DeclaredAt)
	return r, err
}
