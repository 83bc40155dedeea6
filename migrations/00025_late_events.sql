-- +goose Up

-- A message's history is found here where it goes on long after the message began:
-- near to that, events_batches is walked (queries/history.go). Most batches name
-- messages of a moment ago, and cost nothing here. A late one lies where the first of
-- its messages began, so that a message is looked for among those of its time. How
-- far the others began from there is the spread: 0, 4096, 1048576, or more, which is -1.
create index events_late on leat.events (
    channel_id,
    (case
        when message_ranges is not null then -1
        when message_ids[1] = all (message_ids) then 0
        when message_ids[1] - 4096 <= all (message_ids) and message_ids[1] + 4096 >= all (message_ids) then 4096
        when message_ids[1] - 1048576 <= all (message_ids) and message_ids[1] + 1048576 >= all (message_ids) then 1048576
        else -1
    end),
    (message_ids[1]),
    position)
    where position - 16384 >= any (message_ids) or message_ranges is not null;
