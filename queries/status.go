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
	StartedAt       time.Time           // the server
	LastPosition    eventstore.Position // drawn from the sequence
	SettledPosition eventstore.Position
	SettledHolder   *Holder             // the oldest open append, nil when there is none
	PartitionedTo   eventstore.Position // positions below have partitions
	Checkpoint      eventstore.Position // from which a rebuild would start, 0 when there is none
	CheckpointAt    *time.Time          // nil when there is none
	ViewsAlive      bool
	Rebuild         Progress // of the rebuild that goes on, while the views are lost
	OpenCircuits    int64    // routing keys whose circuit is not closed
	Unplaced        int64    // published while the views were lost, and not in them yet
	Horizon         *Holder  // nil when nobody has a snapshot
	Sessions        []Sessions
	Brokers         []Broker
	Restored        *Restored // nil when it never was
	WALEnd          uint64    // of the write-ahead log, in bytes; 0 on a standby
}

// Restored is when the database was last found to be another one than before.
type Restored struct {
	Position eventstore.Position // of the log.restored event
	At       time.Time
}

// Broker is a broker that is alive.
type Broker struct {
	ID     string
	Tail   string // wal or notify
	Reason string // why not wal
	Since  time.Time
}

// Progress of a rebuild of the queue views, in events of the log.
type Progress struct {
	Done  int64
	Total int64 // about
}

// Holder is a session, or a prepared transaction, that holds something back.
type Holder struct {
	PID         int    // 0 of a prepared transaction
	Application string // the name of a prepared transaction
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
       pg_catalog.pg_postmaster_start_time(),
       (select case when s.is_called then s.last_value else 0 end from leat.position_seq s),
       leat.settled_position(),
       (
           select coalesce(max((regexp_match(pg_catalog.pg_get_expr(p.relpartbound, p.oid), 'TO \(''?(\d+)'))[1]::bigint), 0)
           from pg_catalog.pg_inherits i
           join pg_catalog.pg_class p on p.oid = i.inhrelid
           where i.inhparent = 'leat.events'::regclass
       ),
       coalesce(k.position, 0),
       k.at,
       leat.views_alive(),
       r.done,
       r.total,
       (select coalesce(sum(cardinality(u.ids)), 0) from leat.unplaced u),
       (select count(*) from leat.circuits k where k.state <> 'closed'),
       case when pg_catalog.pg_is_in_recovery() then 0 else pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')::bigint end,
       h.restored,
       h.restored_at
from leat.rebuild_progress() r
left join leat.home h on true
left join (
    select p.position, p.at
    from leat.checkpoints p
    order by p.position desc
    limit 1
) k on true`

// Sessions of other databases count: some of them hold the horizon of shared
// catalogs, and an operator looks for them all the same. What a role may not see
// of other roles' sessions (pg_read_all_stats lets it) is not found.
const horizonSQL = `-- queries.horizon
select h.pid,
       h.application,
       h.database,
       h.state,
       h.since
from (
    select a.pid,
           coalesce(a.application_name, '') as application,
           coalesce(a.datname, '') as database,
           coalesce(a.state, a.backend_type, '') as state,
           coalesce(a.xact_start, a.backend_start, clock_timestamp()) as since,
           greatest(age(a.backend_xmin), age(a.backend_xid)) as age
    from pg_catalog.pg_stat_activity a
    where a.pid <> pg_catalog.pg_backend_pid()
      and (a.backend_xmin is not null or a.backend_xid is not null)
      and a.backend_type <> 'autovacuum worker'
    union all
    select 0, x.gid, x.database, 'prepared', x.prepared, age(x.transaction)
    from pg_catalog.pg_prepared_xacts x
) h
order by h.age desc,
         h.since
limit 1`

// Whoever appends shares an advisory lock on the position that was the last when
// it began (leat.fence).
const settledHolderSQL = `-- queries.settledHolder
select coalesce(a.pid, 0),
       coalesce(a.application_name, ''),
       current_database(),
       coalesce(a.state, 'prepared'),
       coalesce(a.xact_start, clock_timestamp())
from pg_catalog.pg_locks l
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory'
  and l.classid = 1279607041
  and l.objsubid = 2
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
order by a.xact_start
limit 1`

const sessionsSQL = `-- queries.sessions
select coalesce(a.application_name, ''),
       count(*)
from pg_catalog.pg_stat_activity a
where a.datname = current_database()
  and a.backend_type = 'client backend'
group by 1
order by 1`

const brokersSQL = `-- queries.brokers
select b.id,
       b.tail,
       coalesce(b.reason, ''),
       b.since
from leat.brokers b
where b.until > clock_timestamp()
order by b.id`

// Status looks at the database.
func (q *Queries) Status(ctx context.Context) (Status, error) {
	var (
		s          Status
		restored   *eventstore.Position
		restoredAt *time.Time
	)
	err := q.pool.QueryRow(ctx, statusSQL).Scan(&s.ServerVersion, &s.Database, &s.StartedAt, &s.LastPosition,
		&s.SettledPosition, &s.PartitionedTo, &s.Checkpoint, &s.CheckpointAt, &s.ViewsAlive, &s.Rebuild.Done, &s.Rebuild.Total, &s.Unplaced, &s.OpenCircuits, &s.WALEnd, &restored, &restoredAt)
	if err != nil {
		return s, wrap(err, "read status")
	}
	if restored != nil {
		s.Restored = &Restored{*restored, *restoredAt}
	}
	if s.SettledHolder, err = q.holder(ctx, settledHolderSQL); err != nil {
		return s, wrap(err, "find the oldest append")
	}
	if s.Horizon, err = q.holder(ctx, horizonSQL); err != nil {
		return s, wrap(err, "find the horizon")
	}
	if s.Sessions, err = collect(ctx, q.pool, pgx.RowToStructByPos[Sessions], sessionsSQL); err != nil {
		return s, wrap(err, "count sessions")
	}
	s.Brokers, err = collect(ctx, q.pool, pgx.RowToStructByPos[Broker], brokersSQL)
	return s, wrap(err, "list brokers")
}

func (q *Queries) holder(ctx context.Context, sql string) (*Holder, error) {
	found, err := collect(ctx, q.pool, pgx.RowToAddrOfStructByPos[Holder], sql)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}
