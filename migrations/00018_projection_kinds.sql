-- +goose Up
-- Alone, because a value of an enum cannot be used in the transaction that adds it.
alter type leat.event_kind add value 'projection.stopped';
alter type leat.event_kind add value 'projection.started';
alter type leat.event_kind add value 'projection.failed';
alter type leat.event_kind add value 'projection.retried';
alter type leat.event_kind add value 'projection.skipped';
alter type leat.event_kind add value 'projection.rebuild_started';
alter type leat.event_kind add value 'projection.rebuilt';
