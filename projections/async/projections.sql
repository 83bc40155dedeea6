-- The state of asynchronous projections. Each transaction that takes a batch holds
-- the row of its generation, so one broker at a time takes it; stop, retry and the
-- others wait for that.

-- What a generation is to take next: events of the log with positions after
-- lower_bound, up to upper_bound, at most size positions. Its status:
--   batch    take it; the row is locked
--   idle     there is nothing new
--   busy     somebody else takes a batch now
--   stopped, failed: by hand, or by an event that it cannot take
--   gone     there is no such generation any more
-- Whatever reads the log up to upper_bound does it in a later statement.
create function leat.next_batch(
    projection      text,
    wanted          integer, -- the generation
    size            integer,
    out status      text,
    out lower_bound bigint,
    out upper_bound bigint,
    out settled     bigint,
    out building    boolean
)
language plpgsql set search_path = '' as $$
declare
    own   leat.projections;
    first bigint;
begin
    -- If a crash loses this commit, it loses effects and checkpoint together.
    perform set_config('synchronous_commit', 'off', true);
    -- The log is read by ranges of positions, whatever the planner knows of it.
    perform set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);
    select p.* into own
    from leat.projections p
    where p.name = projection and p.generation = wanted
    for update skip locked;
    if not found then
        status := case
            when exists (select from leat.projections p where p.name = projection and p.generation = wanted) then 'busy'
            else 'gone' end;
        return;
    end if;
    building := own.state = 'building';
    lower_bound := own.position;
    upper_bound := own.position;
    if own.state = 'retired' then
        status := 'gone';
        return;
    elsif own.stopped then
        status := 'stopped';
        return;
    elsif own.failed_position is not null then
        status := 'failed';
        return;
    end if;
    settled := leat.settled_position();
    status := 'batch';
    if settled > own.position then
        -- Gaps cost nothing.
        select e.position into first
        from leat.events e
        where e.position > own.position and e.position <= settled
        order by e.position
        limit 1;
        upper_bound := case when first is null then settled else least(settled, first + size - 1) end;
    elsif not building then
        status := 'idle';
    end if;
end
$$;

-- A generation cannot take an event: it waits before it.
create function leat.fail_projection(projection text, failing integer, event bigint, error text) returns void
language plpgsql set search_path = '' as $$
begin
    perform leat.append('projection.failed', null, 'leat', null,
        jsonb_build_object('projection', projection, 'generation', failing, 'position', event, 'error', error));
    update leat.projections p
    set failed_position = event, failed_at = clock_timestamp(), error = fail_projection.error
    where p.name = projection and p.generation = failing;
end
$$;

-- A generation that has caught up takes the place of the live one. False: not now,
-- because that one is further on, or takes a batch. The caller holds the row of the new one.
create function leat.switch_projection(projection text, ready integer) returns boolean
language plpgsql set search_path = '' as $$
declare
    own  leat.projections;
    live leat.projections;
begin
    select p.* into own from leat.projections p where p.name = projection and p.generation = ready;
    select p.* into live
    from leat.projections p
    where p.name = projection and p.state = 'live'
    for update skip locked;
    if live.position > own.position
        or (live is null and exists (select from leat.projections p where p.name = projection and p.state = 'live')) then
        return false;
    end if;
    update leat.projections p set state = 'retired' where p.name = projection and p.generation = live.generation;
    update leat.projections p set state = 'live' where p.name = projection and p.generation = ready;
    perform leat.append('projection.rebuilt', null, own.actor, null,
        jsonb_build_object('projection', projection, 'generation', ready, 'version', own.version, 'position', own.position));
    return true;
end
$$;

-- Makes the first generation of a projection, or a new one beside the live one if
-- that is of an older version of the code.
create function leat.declare_projection(projection text, code_version integer) returns void
language plpgsql set search_path = '' as $$
begin
    insert into leat.projections (name, generation, version, state, actor)
    select projection, 1, code_version, 'live', 'leat'
    where not exists (select from leat.projections p where p.name = projection)
    on conflict do nothing;
    if exists (select from leat.projections p where p.name = projection and p.state = 'live' and p.version < code_version) then
        perform leat.rebuild_projection(projection, code_version, 'leat', true);
    end if;
end
$$;

-- Locks the generations of a projection, and waits for batches that are under way: a
-- while, because nobody shall wait for a database that hangs.
create function leat.lock_projection(projection text) returns void
language plpgsql set search_path = '' as $$
begin
    perform set_config('lock_timeout', '10s', true);
    perform from leat.projections p where p.name = projection order by p.generation for update;
    if not found then
        raise exception 'There is no projection %.', projection using errcode = 'LE040';
    end if;
end
$$;

-- Begins a generation beside the live one, which is read until the new one has caught
-- up. One of an older version of the code that is being built is given up. False: it
-- is being built already. What has left the log cannot be built again: without force
-- nothing begins then.
create function leat.rebuild_projection(projection text, code_version integer, who text, force boolean) returns boolean
language plpgsql set search_path = '' as $$
declare
    number integer;
    begins bigint := greatest((select b.first_position from leat.log_begin b), (select max(g.high) + 1 from leat.log_gaps() g));
begin
    perform leat.lock_projection(projection);
    if begins is not null and not force then
        raise exception 'The log is whole from position % on only: what % has of before would be gone when it is built anew. Force it to let that go.',
            begins, projection
            using errcode = 'LE053', detail = begins;
    end if;
    update leat.projections p set state = 'retired'
    where p.name = projection and p.state = 'building' and p.version < code_version;
    insert into leat.projections (name, generation, version, state, stopped, actor)
    select projection, max(p.generation) + 1, code_version, 'building', bool_or(p.stopped and p.state = 'live'), who
    from leat.projections p
    where p.name = projection
    on conflict do nothing
    returning generation into number;
    if number is null then
        return false;
    end if;
    perform leat.append('projection.rebuild_started', null, who, null, jsonb_strip_nulls(jsonb_build_object(
        'projection', projection, 'generation', number, 'version', code_version, 'logBegins', begins)));
    return true;
end
$$;

-- Stops a projection, or starts it again; false: it was like that.
create function leat.stop_projection(projection text, stop boolean, who text) returns boolean
language plpgsql set search_path = '' as $$
begin
    perform leat.lock_projection(projection);
    update leat.projections p set stopped = stop
    where p.name = projection and p.state <> 'retired' and p.stopped <> stop;
    if not found then
        return false;
    end if;
    perform leat.append(case when stop then 'projection.stopped' else 'projection.started' end::leat.event_kind,
        null, who, null, jsonb_build_object('projection', projection));
    return true;
end
$$;

-- Lets a projection that failed try its event again, or go on behind it; false: it
-- has not failed.
create function leat.resume_projection(projection text, skip boolean, who text) returns boolean
language plpgsql set search_path = '' as $$
declare
    failed leat.projections;
    any_   boolean := false;
begin
    perform leat.lock_projection(projection);
    for failed in
        select p.* from leat.projections p
        where p.name = projection and p.state <> 'retired' and p.failed_position is not null
        order by p.generation
    loop
        any_ := true;
        update leat.projections p
        set position = case when skip then failed.failed_position else p.position end,
            failed_position = null, failed_at = null, error = null
        where p.name = projection and p.generation = failed.generation;
        perform leat.append(case when skip then 'projection.skipped' else 'projection.retried' end::leat.event_kind, null, who, null,
            jsonb_build_object('projection', projection, 'generation', failed.generation, 'position', failed.failed_position,
                'error', failed.error));
    end loop;
    return any_;
end
$$;
