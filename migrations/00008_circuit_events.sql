-- +goose Up

-- Which circuits are open is read from these few events, in their order.
create index events_circuits on leat.events (channel_id, routing_key, position)
    where kind in ('circuit.opened', 'circuit.half_opened', 'circuit.closed');
