-- +goose Up

-- Who is alive is asked by publishes: a held snapshot must not make them walk
-- through all renewals since.
create index brokers_until on leat.brokers (until);
