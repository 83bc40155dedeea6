package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func traceCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace <message-id>",
		Short: "Tell the history of a message and of its whole family, one event a line",
		Long: "Tell what happened to a message, to what it was copied from and to every copy, one event a line:\n" +
			"copies stand further in, behind the message that they were made of.",
	}
	var cursor string
	var limit int
	cmd.Flags().StringVar(&cursor, "cursor", "", "only copies from here on, where a trace left some out")
	cmd.Flags().IntVarP(&limit, "limit", "n", 1000, "at most this many messages, 1 to 1000")
	cmd.RunE = c.remote(func(c *call) error {
		id, err := c.messageID()
		if err != nil {
			return err
		}
		if limit < 1 || limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		family, err := c.broker.Lineage(c.ctx(), id, cursor, limit)
		if err != nil {
			return err
		}
		return c.show(family, func(t *table) { familyTable(t, family) })
	})
	return cmd
}

func familyTable(t *table, family api.Lineage) {
	t.row("MESSAGE", "TIME", "WHAT HAPPENED", "WHERE", "WHO", "WHY")
	for _, m := range family.Messages {
		name := strings.Repeat("  ", m.Depth) + m.MessageID.String()
		for _, e := range m.Events {
			t.row(name, e.At, happened(m, e), where(m, e), orNone(e.Actor), eventReason(e))
		}
		if m.State == "deleted" && m.NextEvents == "" { // its channel's event does not name it
			t.row(name, none, "gone with its channel", m.Channel, none, none)
		}
	}
	for _, m := range family.Messages {
		if m.NextEvents != "" {
			t.row(fmt.Sprintf("there are more events: leat replay --message %d --cursor %s", m.MessageID, m.NextEvents))
		}
		if m.NextCopies != "" {
			t.row(fmt.Sprintf("there are more copies: leat trace %d --cursor %s", m.MessageID, m.NextCopies))
		}
	}
}

// where is the channel of an event, and the key where the message gets it.
func where(m api.LineageMessage, e api.Event) string {
	begins := e.Kind == string(eventstore.MessagePublished) || e.Kind == string(eventstore.MessageCopied)
	if begins && m.RoutingKey != "" {
		return m.Channel + ", key " + plain(m.RoutingKey)
	}
	return m.Channel
}

// messageID is the first argument; a receipt names its message too.
func (c *call) messageID() (eventstore.MessageID, error) {
	if receipt, err := eventstore.ParseReceipt(c.args[0]); err == nil {
		return receipt.Message, nil
	}
	id, err := eventstore.ParseMessageID(c.args[0])
	if err != nil {
		return 0, &usageError{c.cmd, err}
	}
	return id, nil
}

// happened says what an event of a message was.
func happened(m api.LineageMessage, e api.Event) string {
	switch eventstore.Kind(e.Kind) {
	case eventstore.MessagePublished:
		return "published" + times(e)
	case eventstore.MessageCopied:
		return fmt.Sprintf("%s %d%s", copied(m.Cause), m.ParentMessageID, times(e))
	case eventstore.MessageDelivered:
		return "delivered until " + cellText(e.DueAt)
	case eventstore.MessageExtended:
		return "lease extended until " + cellText(e.DueAt)
	case eventstore.MessageRetried:
		return "failed, due again " + cellText(e.DueAt)
	case eventstore.MessageLeaseExpired:
		return "lease expired, due again " + cellText(e.DueAt)
	case eventstore.MessageDeadLettered:
		return "dead-lettered"
	case eventstore.MessageRouted:
		return routedFor(e)
	case eventstore.MessageRecovered:
		return recovered(e) + times(e)
	case eventstore.CircuitOpened:
		return "opened the circuit of its key"
	case eventstore.CircuitHalfOpened:
		return "tries the circuit of its key"
	case eventstore.CircuitClosed:
		return "closed the circuit of its key"
	default:
		return shortKind(e.Kind)
	}
}

// times are when a message is due and expires, where it does.
func times(e api.Event) (text string) {
	if e.DueAt != nil {
		text += ", due " + cellText(e.DueAt)
	}
	if e.ExpiresAt != nil {
		text += ", expires " + cellText(e.ExpiresAt)
	}
	return text
}

// copied says how a message came to be a copy.
func copied(cause string) string {
	switch cause {
	case "deadLetter":
		return "copied for the death of"
	case "redrive":
		return "redriven from"
	case "republish":
		return "republished from"
	default:
		return "copied from"
	}
}

// eventData is what this command knows of the data of events.
type eventData struct {
	Reason, Detail, ErrorClass string
	Cause                      string
	To                         any // a channel, or positions
	Admitted                   bool
}

// dataOf reads the data of an event of a message; not ok is data of a later
// version.
func dataOf(e api.Event) (data eventData, ok bool) {
	return data, len(e.Data) == 0 || json.Unmarshal(e.Data, &data) == nil
}

func routedFor(e api.Event) string {
	data, _ := dataOf(e)
	switch data.Cause {
	case "dead_letter":
		return "routed to where its queue's dead letters go"
	case "redrive":
		return "routed to where it was redriven"
	case "republish":
		return "published again"
	default:
		return "routed along links"
	}
}

func recovered(e api.Event) string {
	data, _ := dataOf(e)
	to, redriven := data.To.(string)
	switch {
	case redriven:
		return "redriven to " + plain(to)
	case data.Admitted:
		return "recovered, while its circuit is not closed"
	default:
		return "recovered"
	}
}

// eventReason is what an event says of why it happened.
func eventReason(e api.Event) string {
	data, ok := dataOf(e)
	if !ok {
		return plain(string(e.Data)) // of a later version, or about several messages: as it is
	}
	return reasonText(data.Reason, data.Detail, data.ErrorClass)
}

func messageCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "message <message-id>",
		Short: "Say where a message is now",
	}
	past := addAsOf(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		past.lookAt(c)
		id, err := c.messageID()
		if err != nil {
			return err
		}
		message, err := c.broker.Message(c.ctx(), id)
		if err != nil {
			return err
		}
		return c.show(message, func(t *table) { messageTable(t, message) })
	})
	return cmd
}

func messageTable(t *table, m api.StoredMessage) {
	t.row("message", m.MessageID)
	t.row("origin", m.OriginMessageID)
	t.row("channel", m.Channel)
	t.row("routing key", plain(m.RoutingKey))
	t.row("priority", m.Priority)
	t.row("state", m.State)
	t.row("attempts", m.Attempts)
	t.row("published at", m.PublishedAt)
	t.row("due at", m.DueAt)
	t.row("expires at", m.ExpiresAt)
	if m.LeaseUntil != nil {
		t.row("receipt", fmt.Sprintf("%d:%d", m.Delivery, m.MessageID))
		t.row("in flight", fmt.Sprintf("with %s until %s", orNone(m.Owner), cellText(m.LeaseUntil)))
	}
	if m.DiedAt != nil {
		t.row("died at", m.DiedAt)
		t.row("reason", reasonText(m.Reason, m.Detail, m.ErrorClass))
	}
	t.row("content type", orNone(m.ContentType))
	t.row("headers", orNone(string(m.Headers)))
	t.row("payload", preview(m.Content))
}
