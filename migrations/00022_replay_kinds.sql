-- +goose Up
-- Alone, because a value of an enum cannot be used in the transaction that adds it.
alter type leat.event_kind add value 'replay.started';
alter type leat.event_kind add value 'replay.resumed';
alter type leat.event_kind add value 'replay.advanced';
alter type leat.event_kind add value 'replay.finished';
