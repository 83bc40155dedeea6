package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

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
	reverse, follow   bool
}

func replayCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Read the log, event by event",
		Long: "Read the log, event by event, up to the settled position, and write NDJSON: one event a line,\n" +
			"as the HTTP API has it. With -o table it writes a line for people instead.\n\n" +
			"With --follow it goes on with what is appended later, until it is interrupted; a lost connection\n" +
			"is made again, and told on stderr. A replay that broke off says from where to go on.",
		Example: `  leat replay --channel orders --since 1h
  leat replay --channel orders --follow
  leat replay --kind message.dead_lettered --kind message.purged --reverse -n 20 -o table`,
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
	flags.BoolVarP(&f.reverse, "reverse", "r", false, "from the last one to the first")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what is appended later")
	flags.StringVar(&f.cursor, "cursor", "", "go on where a replay ended")
	dir := flags.String("archive", "", "read an archive in this folder, and not the broker's log")
	cmd.RunE = c.remote(func(c *call) error {
		filter, err := f.filter(cmd)
		if err != nil {
			return err
		}
		lines := c.json || !cmd.Flags().Changed("output")
		if *dir != "" {
			if f.reverse || f.follow || f.cursor != "" {
				return wrongUsage(cmd, "--archive is read forwards, from --from on: it does not go with --reverse, --follow and --cursor")
			}
			return replayArchive(c, *dir, filter, lines)
		}
		return replay(c, filter, lines)
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
		RoutingKey: given(cmd, "key", &f.key), Backwards: f.reverse, Follow: f.follow, Cursor: f.cursor, Limit: f.limit,
	}, nil
}

func kindNames() string {
	var names []string
	for _, kind := range eventstore.Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// replay writes what is chosen. Where that breaks off it says how to go on.
func replay(c *call, filter client.EventsFilter, lines bool) (err error) {
	var last eventstore.Position
	if lines {
		n := &notes{to: c.cmd.ErrOrStderr()}
		last, err = c.broker.CopyEvents(c.ctx(), c.out, filter, client.ReplayConfig{
			OnLost:    n.lost,
			OnResumed: func(from eventstore.Position) { n.connected(fmt.Sprintf("at position %d", from)) },
		})
	} else {
		last, err = c.printEvents(filter)
	}
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return nil // whoever read has seen enough
	case err == nil, last == 0, c.ctx().Err() != nil:
		return err
	case filter.Backwards:
		return fmt.Errorf("replay (go on with --to %d): %w", last-1, err)
	default:
		return fmt.Errorf("replay (go on with --from %d): %w", last+1, err)
	}
}

// printEvents writes for people, a line for each event.
func (c *call) printEvents(filter client.EventsFilter) (last eventstore.Position, err error) {
	for e, err := range c.broker.StreamEvents(c.ctx(), filter) {
		if err != nil {
			return last, err
		}
		if err := c.printEvent(&e); err != nil {
			return last, err
		}
		last = e.Position
	}
	return last, nil
}

func (c *call) printEvent(e *api.Event) error {
	text := fmt.Sprintf("%d  %s  %s %s  %s\n", e.Position, cellText(e.At), shortKind(e.Kind), about(*e), orNone(e.Actor))
	if _, err := io.WriteString(c.out, text); err != nil {
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
