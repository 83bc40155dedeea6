-- +goose Up
-- Alone, because a value of an enum cannot be used in the transaction that adds it.
alter type leat.event_kind add value 'log.sealed';
alter type leat.event_kind add value 'log.archived';
alter type leat.event_kind add value 'log.dropped';
