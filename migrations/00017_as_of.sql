-- +goose Up

-- What a channel was at some position, and which one had a name, is read from these
-- few events.
create index events_channels on leat.events (channel_id, position)
    where kind in ('channel.declared', 'channel.altered', 'channel.deleted');
