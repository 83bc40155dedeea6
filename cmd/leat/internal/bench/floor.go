package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// floorSchemaSQL makes the tables of the floors beside the broker's.
const floorSchemaSQL = `
create schema floor;

-- The log again: its columns, defaults, indexes and partitions.
create sequence floor.position_seq as bigint cache 1;
create table floor.events (like leat.events including all) partition by range (position);
alter table floor.events alter column position set default nextval('floor.position_seq');
do $$
declare
    p record;
begin
    for p in
        select c.relname, pg_get_expr(c.relpartbound, c.oid) as bounds
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'leat.events'::regclass
    loop
        execute format('create table floor.%I partition of floor.events %s', p.relname, p.bounds);
    end loop;
end
$$;

-- A plain queue, cleaned as eagerly as the broker's own.
create table floor.queue (
    id      bigint generated always as identity (cache 1) primary key,
    payload bytea not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The shape of a pgmq queue.
create table floor.leased (
    msg_id      bigint generated always as identity (cache 1) primary key,
    read_ct     integer not null default 0,
    enqueued_at timestamptz not null default now(),
    vt          timestamptz not null default now(),
    message     bytea not null,
    headers     jsonb
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index leased_vt on floor.leased (vt);
`

// kept is how many connections of the floors stay open between their samples.
const kept = 2 * pairs

// floors are the connections to the tables of the floors.
type floors struct {
	url  string
	idle connections
}

func newFloors(ctx context.Context, b *bed) (*floors, error) {
	if _, err := b.node.Pool.Exec(ctx, floorSchemaSQL); err != nil {
		return nil, fmt.Errorf("make tables of the floors: %w", err)
	}
	return &floors{url: b.url}, nil
}

// connections are one per worker.
type connections []*pgx.Conn

// open takes n connections and runs warm on each, so that caches are filled.
func (f *floors) open(ctx context.Context, n int, warm func(ctx context.Context, conn *pgx.Conn) error) (connections, error) {
	for len(f.idle) < n {
		conn, err := pgx.Connect(ctx, f.url)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		f.idle = append(f.idle, conn)
	}
	conns := f.idle[:n:n]
	for _, conn := range conns {
		err := undone(ctx, conn, func(ctx context.Context, tx pgx.Tx) error { return warm(ctx, tx.Conn()) })
		if err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	return conns, nil
}

// trim closes connections that only few samples need.
func (f *floors) trim(ctx context.Context, keep int) error {
	if f == nil || len(f.idle) <= keep {
		return nil
	}
	excess := f.idle[keep:]
	f.idle = f.idle[:keep]
	return excess.close(ctx)
}

// undone does something in a transaction that is rolled back.
func undone(ctx context.Context, conn *pgx.Conn, do func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, tx), tx.Rollback(ctx))
}

func (c connections) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var errs []error
	for _, conn := range c {
		errs = append(errs, conn.Close(ctx))
	}
	return errors.Join(errs...)
}

// The channel that the floors' events belong to.
const floorChannel = 1

const insertFloorSQL = `-- bench.insertFloor
insert into floor.events (kind, channel_id, routing_key, actor, payload)
values ('message.published', $1, $2, $3, $4)`

// insertFloor inserts and commits one row at a time.
func (l *lab) insertFloor(producers int) func(context.Context, *clock) (tally, error) {
	payload := l.payload(0)
	return l.writeFloor(producers, 1, func(ctx context.Context, conn *pgx.Conn, _ int) error {
		_, err := conn.Exec(ctx, insertFloorSQL, floorChannel, l.keys[0], actor, payload)
		return err
	})
}

const copyFloorSQL = `copy floor.events (kind, channel_id, routing_key, actor, payload) from stdin (format binary)`

// copyFloor copies and commits one batch at a time.
func (l *lab) copyFloor(producers, batch int) func(context.Context, *clock) (tally, error) {
	// As binary COPY wants it: made once, so that the floor pays nothing for it.
	full := sync.OnceValue(func() []byte { return copyData(batch, l.keys[0], l.payload(0)) })
	return l.writeFloor(producers, batch, func(ctx context.Context, conn *pgx.Conn, n int) error {
		data := full()
		if n != batch {
			data = copyData(n, l.keys[0], l.payload(0))
		}
		_, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(data), copyFloorSQL)
		return err
	})
}

// copyData is a batch in the format of binary COPY.
func copyData(rows int, key string, payload []byte) []byte {
	data := []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	fields := [][]byte{
		[]byte("message.published"),
		binary.BigEndian.AppendUint32(nil, floorChannel),
		[]byte(key),
		[]byte(actor),
		payload,
	}
	for range rows {
		data = binary.BigEndian.AppendUint16(data, uint16(len(fields)))
		for _, field := range fields {
			data = binary.BigEndian.AppendUint32(data, uint32(len(field)))
			data = append(data, field...)
		}
	}
	return append(data, 0xff, 0xff)
}

// writeFloor writes batches by connections of their own.
func (l *lab) writeFloor(producers, batch int, write func(ctx context.Context, conn *pgx.Conn, n int) error,
) func(context.Context, *clock) (tally, error) {
	return func(ctx context.Context, c *clock) (done tally, err error) {
		conns, err := l.floors.open(ctx, producers, func(ctx context.Context, conn *pgx.Conn) error { return write(ctx, conn, 1) })
		if err != nil {
			return tally{}, err
		}
		defer func() { err = errors.Join(err, l.floors.trim(ctx, kept)) }()
		if err := c.start(ctx); err != nil {
			return tally{}, err
		}
		run := l.quota()
		sent, err := each(ctx, producers, func(ctx context.Context, worker int) (int, error) {
			sent := 0
			for n := run.take(batch); n > 0; n = run.take(batch) {
				if err := write(ctx, conns[worker], n); err != nil {
					return sent, err
				}
				sent += n
			}
			return sent, nil
		})
		if err != nil {
			return tally{}, err
		}
		return tally{messages: sent}, c.stop(ctx)
	}
}

const deleteFloorSQL = `-- bench.deleteFloor
delete from floor.queue q
where q.id = any (array(
    select p.id from floor.queue p order by p.id limit $1 for update skip locked))
returning q.payload`

// deleteEnd takes rows by deleting them.
type deleteEnd struct {
	conns connections
	limit int
	pause time.Duration // after finding nothing
}

func (e deleteEnd) receive(ctx context.Context, worker int) ([]delivery, error) {
	// Not cut short: the end of the context would close the connection.
	rows, err := e.conns[worker].Query(context.WithoutCancel(ctx), deleteFloorSQL, e.limit)
	if err != nil {
		return nil, err
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d delivery, err error) {
		err = row.Scan(&d.payload)
		return d, err
	})
	if err == nil && len(got) == 0 {
		err = waitUntil(ctx, time.Now().Add(e.pause))
	}
	return got, err
}

func (e deleteEnd) settle(context.Context, []delivery) error { return nil }

func (e deleteEnd) on(conns connections) end { e.conns = conns; return e }

func (deleteEnd) table() string { return "floor.queue (payload)" }

const leaseFloorSQL = `-- bench.leaseFloor
with picked as (
    select p.msg_id from floor.leased p
    where p.vt <= clock_timestamp()
    order by p.msg_id limit $1 for update skip locked
)
update floor.leased q
set vt = clock_timestamp() + interval '10 min', read_ct = q.read_ct + 1
from picked
where q.msg_id = picked.msg_id
returning q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message`

const unleaseFloorSQL = `-- bench.unleaseFloor
delete from floor.leased q
where q.msg_id = any ($1)
returning q.msg_id`

// leaseEnd takes rows under a lease, as pgmq does, and then deletes them.
type leaseEnd struct {
	conns connections
	limit int
}

func (e leaseEnd) receive(ctx context.Context, worker int) ([]delivery, error) {
	conn := e.conns[worker]
	ctx = context.WithoutCancel(ctx) // its end would close the connection
	rows, err := conn.Query(ctx, leaseFloorSQL, e.limit)
	if err != nil {
		return nil, err
	}
	var (
		ids  []int64
		id   int64
		read int32
		at   time.Time
		vt   time.Time
		d    delivery
		got  []delivery
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &read, &at, &vt, &d.payload}, func() error {
		ids, got = append(ids, id), append(got, d)
		d.payload = nil
		return nil
	})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	deleted, err := conn.Exec(ctx, unleaseFloorSQL, ids)
	if err == nil && int(deleted.RowsAffected()) != len(ids) {
		err = fmt.Errorf("%w: %d deleted instead of %d", errCount, deleted.RowsAffected(), len(ids))
	}
	return got, err
}

func (e leaseEnd) settle(context.Context, []delivery) error { return nil }

func (e leaseEnd) on(conns connections) end { e.conns = conns; return e }

func (leaseEnd) table() string { return "floor.leased (message)" }

// floorEnd is an end on a table of the floors.
type floorEnd interface {
	end
	on(conns connections) end
	table() string // with the column of the payload
}

// drainFloor drains a table.
func (l *lab) drainFloor(consumers, messages int, from floorEnd) func(context.Context, *clock) (tally, error) {
	return func(ctx context.Context, c *clock) (done tally, err error) {
		if err := l.fillFloor(ctx, from, messages); err != nil {
			return tally{}, fmt.Errorf("fill: %w", err)
		}
		conns, err := l.floors.open(ctx, consumers, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := from.on(connections{conn}).receive(ctx, 0)
			return err
		})
		if err != nil {
			return tally{}, err
		}
		defer func() { err = errors.Join(err, l.floors.trim(ctx, kept)) }()
		if err := c.start(ctx); err != nil {
			return tally{}, err
		}
		if err := drain(ctx, from.on(conns), consumers, messages); err != nil {
			return tally{}, err
		}
		return tally{messages: messages}, c.stop(ctx)
	}
}

func (l *lab) fillFloor(ctx context.Context, from floorEnd, messages int) error {
	pool := l.main.node.Pool
	if _, err := pool.Exec(ctx, "truncate floor.queue, floor.leased"); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "insert into "+from.table()+" select $1::bytea from generate_series(1, $2)",
		l.payload(0), messages); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "vacuum (analyze) floor.queue, floor.leased")
	return err
}

// waitUntil waits for a time or the end of the context.
func waitUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
