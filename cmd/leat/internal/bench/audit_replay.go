package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// counter counts what is written to it, and what is in it of lines.
type counter struct{ bytes, lines int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.lines += int64(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}

// copyPast is the floor of a replay: PostgreSQL's own text of the same rows.
func (l *lab) copyPast(ctx context.Context, c *clock, p *past) (tally, error) {
	var got counter
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	err := copyEvents(ctx, p.bed, &got, copyTextSQL, 0, int64(p.last))
	if err != nil {
		return tally{}, fmt.Errorf("copy: %w", err)
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	return tally{messages: p.events, bytes: got.bytes}, p.expectLines(got.lines)
}

// The columns that a replay shows, and those that are digested. COPY takes no
// parameters: they come as settings.
const (
	copyRangeSQL = `
from leat.events e
where e.position > current_setting('bench.after')::bigint
  and e.position <= current_setting('bench.upto')::bigint
order by e.position) to stdout`
	copyTextSQL = `
copy (select e.position, e.at, e.delivery, e.stream_offset, e.due_at, e.expires_at, e.channel_id, e.kind, e.priority,
    e.routing_key, e.content_type, e.actor, e.headers, e.message_ids, e.message_ranges, e.origin_ids, e.data,
    convert_from(e.payload, 'UTF8')` + copyRangeSQL
	copyBinarySQL = `
copy (select e.*` + copyRangeSQL + ` (format binary)`
)

const copyBoundsSQL = `-- bench.copyBounds
select set_config('bench.after', $1, true),
       set_config('bench.upto', $2, true)`

// copyEvents copies events behind a position, up to another.
func copyEvents(ctx context.Context, b *bed, to io.Writer, sql string, after, upto int64) error {
	return pgx.BeginFunc(ctx, b.node.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, copyBoundsSQL, strconv.FormatInt(after, 10), strconv.FormatInt(upto, 10)); err != nil {
			return err
		}
		_, err := tx.Conn().PgConn().CopyTo(ctx, to, sql)
		return err
	})
}

// expectLines checks that a replay had every event.
func (p *past) expectLines(lines int64) error {
	if lines != int64(p.events) {
		return fmt.Errorf("%w: %d events instead of %d", errCount, lines, p.events)
	}
	return nil
}

// replayPast reads what the command line writes to a pipe.
func (l *lab) replayPast(ctx context.Context, c *clock, p *past) (done tally, err error) {
	if l.cfg.Replay == nil {
		return tally{}, errors.New("there is no program that replays")
	}
	if err := p.serve(ctx); err != nil {
		return tally{}, err
	}
	cmd := l.cfg.Replay(ctx, p.bed.client.URL(), p.last)
	var (
		got    counter
		stderr bytes.Buffer
	)
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return tally{}, err
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	if err := cmd.Start(); err != nil {
		return tally{}, fmt.Errorf("start the replay: %w", err)
	}
	_, err = io.CopyBuffer(&got, out, make([]byte, 256<<10))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return tally{}, fmt.Errorf("replay: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	done = tally{messages: p.events, bytes: got.bytes, program: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	return done, p.expectLines(got.lines)
}
