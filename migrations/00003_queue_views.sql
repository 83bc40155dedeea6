-- +goose Up

-- A run is a group of messages that share everything but their id: one row, an
-- array of ids. State: 0 ready, 1 delayed, 2 in flight, 3 dead.
-- UNLOGGED, because it is derived: the log rebuilds it after a crash.
-- No primary key: a run is found by what it is (ready, in flight, ...), and
-- every further b-tree would be paid for at each transition.
create unlogged table leat.queue_runs (
    first_id    bigint not null,
    delivery    bigint,
    due_at      timestamptz,
    expires_at  timestamptz,
    died_at     timestamptz,
    channel_id  integer not null,
    deliveries  integer not null default 0,
    state       smallint not null,
    rank        smallint not null,
    fifo        boolean not null,
    routing_key text not null,
    owner       text,
    reason      text,
    ids         bigint[] not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column leat.queue_runs.first_id is 'ids[1]: the order of the run in its queue';
comment on column leat.queue_runs.rank is '9 - priority, so that one ascending index serves';
comment on column leat.queue_runs.delivery is 'in flight: the delivery; dead: the event that says why';
comment on column leat.queue_runs.due_at is 'delayed: not before; in flight: end of the lease';

-- What a claim on a standard queue walks.
create index runs_ready on leat.queue_runs (channel_id, rank, first_id)
    where state = 0 and not fifo;
-- What is waiting under one routing key: the head of a FIFO lane, and polls that filter.
create index runs_key on leat.queue_runs (channel_id, routing_key, rank, first_id)
    where state <= 1;
create index runs_delivery on leat.queue_runs (delivery)
    where state = 2;
-- What the sweeper looks for. A delayed FIFO run is found through its lane. The
-- first condition keeps it out of settlements' plans, which have state = 2 too:
-- before the first ANALYZE it looks as good to them as runs_delivery.
create index runs_due on leat.queue_runs (due_at)
    where due_at is not null and (state = 2 or (state = 1 and not fifo));
create index runs_expires on leat.queue_runs (expires_at)
    where expires_at is not null and state <= 1;
create index runs_dead on leat.queue_runs (channel_id, first_id)
    where state = 3;

-- A FIFO key that holds messages. State: 0 ready, 1 waiting (its head is not
-- due), 2 in flight. A key without messages has no lane.
create unlogged table leat.lanes (
    head_id     bigint not null,
    due_at      timestamptz,
    channel_id  integer not null,
    in_flight   integer not null default 0,
    state       smallint not null,
    routing_key text not null,
    primary key (channel_id, routing_key)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column leat.lanes.head_id is 'no waiting run of the key is below it; 2^63-1: parked, its messages were gone when last looked at';

create index lanes_ready on leat.lanes (channel_id, head_id) where state = 0;
create index lanes_due on leat.lanes (due_at) where state = 1;

-- One row while the unlogged views are whole. A crash empties it with them.
create unlogged table leat.views_alive (
    singleton boolean primary key default true check (singleton),
    since     timestamptz not null default clock_timestamp()
);

-- How many events a rebuild has read: a sequence, because others see it move
-- before the rebuild commits.
create unlogged sequence leat.rebuild_seq cache 1000;

-- What was published while the views were lost and is not in them yet.
create table leat.unplaced (
    ids bigint[] not null
);

-- A compact, logged copy of the views: rebuild starts here. It holds the effect
-- of every event up to position and of those listed in included.
create table leat.checkpoints (
    position bigint primary key,
    included bigint[] not null,
    at       timestamptz not null default clock_timestamp()
);

create table leat.checkpoint_runs (
    checkpoint  bigint not null,
    delivery    bigint,
    due_at      timestamptz,
    expires_at  timestamptz,
    died_at     timestamptz,
    channel_id  integer not null,
    deliveries  integer not null,
    state       smallint not null,
    rank        smallint not null,
    routing_key text not null,
    owner       text,
    reason      text,
    ids         bigint[] not null
);

create index checkpoint_runs_checkpoint on leat.checkpoint_runs (checkpoint);

create view leat.queue_messages as
select c.name as channel,
       i.id as message_id,
       i.id as origin_message_id,
       r.routing_key,
       (9 - r.rank)::smallint as priority,
       case
           when r.state = 1 and r.due_at <= clock_timestamp() then 'ready'
           else (array['ready', 'delayed', 'in_flight', 'dead'])[r.state + 1]
       end as state,
       r.deliveries as attempts,
       case when r.state = 2 then r.delivery end as delivery,
       r.due_at,
       r.expires_at,
       r.owner,
       r.reason,
       r.died_at
from leat.queue_runs r
join leat.channels c on c.id = r.channel_id
cross join lateral unnest(r.ids) as i (id);

create view leat.dead_letters as
select channel as queue,
       message_id,
       origin_message_id,
       routing_key,
       priority,
       attempts,
       reason,
       died_at
from leat.queue_messages
where state = 'dead';

-- A slice [start, upto] of the run at tid, which has size ids, for one request of a claim.
create type leat.pick as (
    tid     tid,
    request integer,
    start   integer,
    upto    integer,
    size    integer
);

-- A new database has an empty log, and so its views are whole.
insert into leat.views_alive default values;
