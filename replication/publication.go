package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Brokers of several versions may share the publication: columns beyond those that
// are needed do no harm. Its version is another one after whatever somebody did to
// it, be it undone since.
const publicationStateSQL = `-- replication.publicationState
select case
           when p.oid is null then 'there is none'
           when p.puballtables then 'it is for all tables'
           when p.rel is null then 'the table leat.events is not in it'
           when not p.pubinsert or p.pubupdate or p.pubdelete or p.pubtruncate then
               'it publishes ' || coalesce(nullif(concat_ws(', ', case when p.pubinsert then 'insert' end, case when p.pubupdate then 'update' end,
                   case when p.pubdelete then 'delete' end, case when p.pubtruncate then 'truncate' end), ''), 'nothing')
               || ' instead of insert'
           when not p.pubviaroot then 'publish_via_partition_root is false'
           when p.filter is distinct from '(stream_offset IS NOT NULL)' then 'its row filter is ' || coalesce(p.filter, 'missing')
           when p.lacks <> '' then 'its list of columns lacks ' || p.lacks
           else ''
       end as fault,
       concat_ws(':', p.oid, p.version, p.rel, p.rel_version) as version
from (select) o
left join (
    select p.*,
           p.xmin as version,
           r.oid as rel,
           r.xmin as rel_version,
           pg_catalog.pg_get_expr(r.prqual, r.prrelid) as filter,
           pg_catalog.array_to_string(array(
               select n.name
               from unnest('{position,at,stream_offset,channel_id,routing_key,content_type,headers,message_ids,origin_ids,payload}'::text[]) n (name)
               where not exists (
                   select
                   from pg_catalog.pg_attribute a
                   where a.attrelid = r.prrelid and a.attname = n.name and a.attnum = any (r.prattrs::pg_catalog.int2[]))), ', ') as lacks
    from pg_catalog.pg_publication p
    left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = 'leat.events'::pg_catalog.regclass
    where p.pubname = 'leat_streams'
) p on true`

// Makes the publication again, unless another broker has done so since it was seen.
// Nobody waits long: others come at the same time, and the table may be locked.
const makePublicationSQL = `-- replication.makePublication
do $$
begin
    perform pg_catalog.set_config('lock_timeout', '5s', true);
    perform pg_catalog.pg_advisory_xact_lock(1279607044, 5);
    if coalesce((select p.oid from pg_catalog.pg_publication p where p.pubname = 'leat_streams')::text, '') <> '%s' then
        return;
    end if;
    drop publication if exists leat_streams;
    create publication leat_streams
        for table leat.events (position, at, stream_offset, channel_id, routing_key, content_type, headers, message_ids, origin_ids, payload)
        where (stream_offset is not null)
        with (publish = 'insert', publish_via_partition_root = true);
end
$$`

// publicationState is what somebody made of the publication.
type publicationState struct {
	fault   string // "": it is right
	version string // "": there is none
}

// publish makes sure that the publication is right, and answers its version. It is
// made again if somebody dropped it or made something else of it.
func (s *session) publish(ctx context.Context) (version string, err error) {
	was, err := s.publication(ctx)
	if err != nil || was.fault == "" {
		return was.version, err
	}
	seen, _, _ := strings.Cut(was.version, ":")
	if _, err := s.conn.Exec(ctx, fmt.Sprintf(makePublicationSQL, seen)).ReadAll(); err != nil {
		return "", err
	}
	if was.version != "" {
		s.tail.cfg.Logger.Warn("the publication was altered, and is made again", "publication", Publication, "fault", was.fault)
	}
	now, err := s.publication(ctx)
	if err == nil && now.fault != "" {
		err = now.altered()
	}
	return now.version, err
}

// publication asks on the connection of the slot, before it streams.
func (s *session) publication(ctx context.Context) (state publicationState, err error) {
	results, err := s.conn.Exec(ctx, publicationStateSQL).ReadAll()
	if err != nil {
		return state, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return state, errors.New("no answer about the publication")
	}
	row := results[0].Rows[0]
	return publicationState{string(row[0]), string(row[1])}, nil
}

func (p publicationState) altered() error {
	switch {
	case p.version == "":
		return fmt.Errorf("the publication %s is gone", Publication)
	case p.fault == "":
		return fmt.Errorf("the publication %s was altered, or made again", Publication)
	default:
		return fmt.Errorf("the publication %s was altered: %s", Publication, p.fault)
	}
}

// watchPublication ends the session when the publication is another one than that
// which it began with: the server would keep rows back without a word.
func (s *session) watchPublication(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(s.tail.cfg.PublicationEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var now publicationState
		asking, cancel := context.WithTimeout(ctx, connectWithin)
		err := s.tail.cfg.Pool.QueryRow(asking, publicationStateSQL).Scan(&now.fault, &now.version)
		cancel()
		switch {
		case err != nil:
			s.tail.cfg.Logger.Debug("look at the publication", "error", err) // the next look tries again
		case now.version != s.published || now.fault != "":
			end(now.altered())
			return
		}
	}
}
