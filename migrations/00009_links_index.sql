-- +goose Up

-- One index answers every question about the links of a source, whatever the
-- planner takes it for, at a cost that does not grow with the links of other
-- rules. Headers are too wide for it: their digest does.
drop index leat.links_same;
drop index leat.links_exact;
drop index leat.links_plain;
create unique index links_same on leat.links
    (source_id, match, coalesce(pattern, ''), target_id, md5(coalesce(headers, 'null')::text), coalesce(header_mode, ''));
