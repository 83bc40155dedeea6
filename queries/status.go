package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Status is how the database is.
type Status struct {
	ServerVersion   string
	Database        string
	LastPosition    eventstore.Position // drawn from the sequence
	SettledPosition eventstore.Position
	Checkpoint      eventstore.Position // from which a rebuild would start, 0 when there is none
	ViewsAlive      bool
	Horizon         *Horizon // nil when no other session has a snapshot
	Sessions        []Sessions
}

// Horizon is the session with the oldest snapshot in the cluster: no row that
// was deleted since can be vacuumed.
type Horizon struct {
	PID         int
	Application string
	Database    string
	State       string
	Since       time.Time // start of its transaction
}

// Sessions counts the sessions of one application on this database.
type Sessions struct {
	Application string
	Count       int
}

const statusSQL = `-- queries.Status
select current_setting('server_version'),
       current_database(),
       (select case when s.is_called then s.last_value else 0 end from leat.position_seq s),
       leat.settled_position(),
       coalesce((select max(p.position) from leat.checkpoints p), 0),
       leat.views_alive()`

// Sessions of other databases count: some of them hold the horizon of shared
// catalogs, and an operator looks for them all the same.
const horizonSQL = `-- queries.horizon
select a.pid,
       coalesce(a.application_name, ''),
       coalesce(a.datname, ''),
       coalesce(a.state, a.backend_type, ''),
       coalesce(a.xact_start, a.backend_start, clock_timestamp())
from pg_catalog.pg_stat_activity a
where a.pid <> pg_catalog.pg_backend_pid()
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and a.backend_type <> 'autovacuum worker'
order by greatest(age(a.backend_xmin), age(a.backend_xid)) desc,
         a.xact_start
limit 1`

const sessionsSQL = `-- queries.sessions
select coalesce(a.application_name, ''),
       count(*)
from pg_catalog.pg_stat_activity a
where a.datname = current_database()
  and a.backend_type = 'client backend'
group by 1
order by 1`

// Status looks at the database.
func (q *Queries) Status(ctx context.Context) (Status, error) {
	var s Status
	row := q.pool.QueryRow(ctx, statusSQL)
	err := row.Scan(&s.ServerVersion, &s.Database, &s.LastPosition, &s.SettledPosition, &s.Checkpoint, &s.ViewsAlive)
	if err != nil {
		return s, wrap(err, "read status")
	}
	holders, err := collect(ctx, q.pool, pgx.RowToAddrOfStructByPos[Horizon], horizonSQL)
	if err != nil {
		return s, wrap(err, "find the horizon")
	}
	if len(holders) > 0 {
		s.Horizon = holders[0]
	}
	s.Sessions, err = collect(ctx, q.pool, pgx.RowToStructByPos[Sessions], sessionsSQL)
	return s, wrap(err, "count sessions")
}
