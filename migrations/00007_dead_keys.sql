-- +goose Up

-- What is dead under one key of a FIFO queue: a circuit tries the first, and
-- recovers all in order.
create index runs_dead_key on leat.queue_runs (channel_id, routing_key, first_id)
    where state = 3 and fifo;
