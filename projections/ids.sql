-- The messages of a batch event: its ids, or, where it names very many, ranges.
create function leat.event_ids(message_ids bigint[], message_ranges int8multirange) returns setof bigint
language sql immutable rows 100 as $$
    select unnest(message_ids)
    union all
    select generate_series(lower(r), upper(r) - 1) from unnest(message_ranges) r
$$;

create function leat.names(message_ids bigint[], message_ranges int8multirange, id bigint) returns boolean
language sql immutable as $$
    select id = any (message_ids) or coalesce(message_ranges @> id, false)
$$;
