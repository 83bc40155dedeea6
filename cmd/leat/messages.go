package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

// pageFlags choose messages of a queue.
type pageFlags struct {
	filter client.MessagesFilter
	key    string
}

func addPageFlags(cmd *cobra.Command) *pageFlags {
	p := &pageFlags{}
	flags := cmd.Flags()
	flags.StringVarP(&p.key, "key", "k", "", "only messages of this routing key")
	flags.IntVarP(&p.filter.Limit, "limit", "n", 100, "at most this many, 1 to 1000")
	flags.StringVar(&p.filter.Cursor, "cursor", "", "go on where the page before ended")
	flags.BoolVar(&p.filter.NoPayload, "no-payload", false, "leave payloads out")
	return p
}

func (p *pageFlags) read(cmd *cobra.Command) (client.MessagesFilter, error) {
	if p.filter.Limit < 1 || p.filter.Limit > 1000 {
		return p.filter, wrongUsage(cmd, "--limit must be from 1 to 1000")
	}
	p.filter.RoutingKey = given(cmd, "key", &p.key)
	return p.filter, nil
}

// more says on the last line of a table how to get the next page.
func more(t *table, cursor string) {
	if cursor != "" {
		t.row("there are more: --cursor " + cursor)
	}
}

func peekCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peek <queue or stream>",
		Short: "Look at the messages of a queue without taking any, or, with --from, of a stream",
	}
	page := addPageFlags(cmd)
	cmd.Flags().StringVar(&page.filter.State, "state", "", "only ready, delayed, inFlight or dead ones")
	past := addAsOf(cmd)
	from := cmd.Flags().String("from", "", "of a stream: earliest, an offset, or a time (RFC 3339); --key is a pattern then")
	cmd.RunE = c.remote(func(c *call) error {
		filter, err := page.read(cmd)
		if err != nil {
			return err
		}
		if *from != "" && *past != "" {
			return wrongUsage(cmd, "--as-of is of queues: a stream is read from a time on by --from")
		}
		past.lookAt(c)
		if *from != "" {
			return c.peekStream(*from, page.key, filter)
		}
		found, err := c.broker.Messages(c.ctx(), c.args[0], filter)
		if err != nil {
			return err
		}
		return c.show(found, func(t *table) {
			t.row("MESSAGE", "KEY", "PRIORITY", "STATE", "ATTEMPTS", "WHEN", "PAYLOAD")
			for _, m := range found.Messages {
				t.row(m.MessageID, plain(m.RoutingKey), m.Priority, m.State, m.Attempts, when(m), preview(m.Content))
			}
			more(t, found.NextCursor)
		})
	})
	return cmd
}

// peekStream shows a page of a stream.
func (c *call) peekStream(from, key string, filter client.MessagesFilter) error {
	if filter.State != "" || filter.Cursor != "" || filter.NoPayload {
		return wrongUsage(c.cmd, "--state, --cursor and --no-payload are of queues, --from is of streams")
	}
	found, err := c.broker.ReadStream(c.ctx(), c.args[0], client.StreamFilter{From: from, Key: key, Limit: filter.Limit})
	if err != nil {
		return err
	}
	return c.show(found, func(t *table) {
		t.row("OFFSET", "MESSAGE", "KEY", "PUBLISHED", "PAYLOAD")
		for _, m := range found.Messages {
			t.row(m.Offset, m.MessageID, plain(m.RoutingKey), m.PublishedAt, preview(m.Content))
		}
		if found.Next < found.End {
			t.row("there are more: --from " + found.Next.String())
		}
	})
}

// when is the time that matters in the state of a message.
func when(m api.StoredMessage) string {
	switch m.State {
	case "delayed":
		return "due " + cellText(m.DueAt)
	case "inFlight":
		return fmt.Sprintf("with %s until %s", orNone(m.Owner), cellText(m.LeaseUntil))
	case "dead":
		return "died " + cellText(m.DiedAt)
	default:
		return "published " + cellText(m.PublishedAt)
	}
}

// reasonText is why a message failed: the broker's reason, what the consumer
// said, and how it classed it.
func reasonText(reason, detail, class string) string {
	text := reason
	if detail != "" {
		if text != "" {
			text += ": "
		}
		text += plain(detail)
	}
	if class != "" {
		text += " [" + plain(class) + "]"
	}
	if text == "" {
		return none
	}
	return text
}
