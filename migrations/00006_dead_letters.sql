-- +goose Up

-- Which dead letters of a queue are meant; null chooses all.
create type leat.dead_filter as (
    routing_key text,
    reason      text,
    died_after  timestamptz,
    died_before timestamptz,
    from_id     bigint,
    to_id       bigint
);

-- What the retention of dead letters looks for. Only what compares died_at can use it.
create index runs_died on leat.queue_runs (channel_id, died_at)
    where state = 3 and died_at is not null;
