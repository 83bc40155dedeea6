-- +goose Up
-- Alone, because a value of an enum cannot be used in the transaction that adds it.
alter type leat.event_kind add value 'message.routed';
alter type leat.event_kind add value 'message.copied';
alter type leat.event_kind add value 'message.recovered';
alter type leat.event_kind add value 'circuit.opened';
alter type leat.event_kind add value 'circuit.half_opened';
alter type leat.event_kind add value 'circuit.closed';
alter type leat.event_kind add value 'link.declared';
alter type leat.event_kind add value 'link.altered';
alter type leat.event_kind add value 'link.deleted';
