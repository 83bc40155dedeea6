-- +goose Up

alter table leat.point_holders add column leaving boolean not null default false;
comment on column leat.point_holders.leaving is 'another member waits for the partition: its reader is to let go of it';
