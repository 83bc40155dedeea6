-- +goose Up
-- Alone, because a value of an enum cannot be used in the transaction that adds it.
alter type leat.event_kind add value 'stream.trimmed';
alter type leat.event_kind add value 'point.created';
alter type leat.event_kind add value 'point.committed';
alter type leat.event_kind add value 'point.reset';
alter type leat.event_kind add value 'point.deleted';
