-- +goose Up

-- An unlogged sequence cannot be read on a standby that was promoted ("bad magic
-- number"), and with it no rebuild can count. It costs one record of WAL for a thousand.
drop sequence leat.rebuild_seq;
create sequence leat.rebuild_seq cache 1000;
