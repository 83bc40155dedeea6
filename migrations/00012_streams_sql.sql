-- +goose Up

-- Who is alive is asked by publishes: a held snapshot must not make them walk
-- through all renewals since.
create index brokers_until on leat.brokers (until);

-- What the log says of a stream's beginning and of its points is read from these.
create index events_points on leat.events (channel_id, position)
    where kind in ('stream.trimmed', 'point.created', 'point.committed', 'point.reset', 'point.deleted');
