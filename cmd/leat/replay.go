package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// replayFlags choose events of the log.
type replayFlags struct {
	from, to, message int64
	since, until      moment
	channel, actor    string
	key               string
	kinds             []string
	limit             int
	cursor            string
}

// replayPage is how many events are read at a time.
const replayPage = 1000

func replayCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Read the log, event by event",
		Long: "Read the log, event by event, up to the settled position, and write NDJSON: one event a line,\n" +
			"as the HTTP API has it. With -o table it writes a line for people instead.",
		Example: `  leat replay --channel orders --since 1h
  leat replay --kind message.dead_lettered --kind message.purged -o table`,
	}
	f := &replayFlags{}
	flags := cmd.Flags()
	flags.Int64Var(&f.from, "from", 0, "first position")
	flags.Int64Var(&f.to, "to", 0, "last position")
	flags.Var(&f.since, "since", "not older than this")
	flags.Var(&f.until, "until", "older than this")
	flags.StringVar(&f.channel, "channel", "", "only of this channel, also one that was deleted")
	flags.StringArrayVar(&f.kinds, "kind", nil, "only of this kind, such as message.acked; once for each")
	flags.Int64Var(&f.message, "message", 0, "only those that name this message")
	flags.StringVarP(&f.key, "key", "k", "", "only message.published with this routing key, and what else is about one key")
	flags.StringVar(&f.actor, "actor", "", "only what this client caused")
	flags.IntVarP(&f.limit, "limit", "n", 0, "at most this many (default: all)")
	flags.StringVar(&f.cursor, "cursor", "", "go on where a replay ended")
	cmd.RunE = c.remote(func(c *call) error {
		filter, err := f.filter(cmd)
		if err != nil {
			return err
		}
		lines := c.json || !cmd.Flags().Changed("output")
		return replay(c, filter, f.limit, lines)
	})
	return cmd
}

func (f *replayFlags) filter(cmd *cobra.Command) (client.EventsFilter, error) {
	for name, number := range map[string]int64{"from": f.from, "to": f.to, "message": f.message, "limit": int64(f.limit)} {
		if cmd.Flags().Changed(name) && number < 1 {
			return client.EventsFilter{}, wrongUsage(cmd, "--%s must be at least 1", name)
		}
	}
	kinds := make([]eventstore.Kind, len(f.kinds))
	for i, name := range f.kinds {
		kind, err := eventstore.ParseKind(name)
		if err != nil {
			return client.EventsFilter{}, wrongUsage(cmd, "%w; there are: %s", err, kindNames())
		}
		kinds[i] = kind
	}
	return client.EventsFilter{
		From: eventstore.Position(f.from), To: eventstore.Position(f.to),
		Since: f.since.Time, Until: f.until.Time,
		Channel: f.channel, Kinds: kinds, MessageID: eventstore.MessageID(f.message), Actor: f.actor,
		RoutingKey: given(cmd, "key", &f.key), Cursor: f.cursor,
	}, nil
}

func kindNames() string {
	var names []string
	for _, kind := range eventstore.Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// replay writes page after page. Where one cannot be read it says how to go on.
func replay(c *call, filter client.EventsFilter, limit int, lines bool) error {
	for left, first := limit, true; ; first = false {
		filter.Limit = replayPage
		if limit > 0 {
			filter.Limit = min(left, replayPage)
		}
		page, err := c.broker.Events(c.ctx(), filter)
		if err != nil && !first {
			return fmt.Errorf("replay (go on with --cursor %s): %w", filter.Cursor, err)
		}
		if err != nil {
			return err
		}
		if err := c.writeEvents(page.Events, lines); err != nil {
			return err
		}
		left -= len(page.Events)
		if page.NextCursor == "" || (limit > 0 && left <= 0) {
			return nil
		}
		filter.Cursor = page.NextCursor
	}
}

func (c *call) writeEvents(events []api.Event, lines bool) error {
	var text []byte
	for _, e := range events {
		if lines {
			text = e.AppendLine(text)
			continue
		}
		text = fmt.Appendf(text, "%d  %s  %s %s  %s\n", e.Position, cellText(e.At), shortKind(e.Kind), about(e), orNone(e.Actor))
	}
	if _, err := c.out.Write(text); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// about says which channel and messages an event is about, and why it happened.
func about(e api.Event) string {
	var text strings.Builder
	text.WriteString(orNone(e.Channel))
	if len(e.Messages) > 0 {
		text.WriteString(" " + strings.Trim(fmt.Sprint(e.Messages), "[]"))
	}
	for _, r := range e.Ranges {
		fmt.Fprintf(&text, " %d-%d", r[0], r[1])
	}
	if reason := eventReason(e); reason != none {
		text.WriteString(" (" + reason + ")")
	}
	return text.String()
}

// shortKind is a kind without what is clear among messages.
func shortKind(kind string) string {
	return strings.ReplaceAll(strings.TrimPrefix(kind, "message."), "_", " ")
}
