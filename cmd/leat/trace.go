package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func traceCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "trace <message-id>",
		Short: "Tell the history of a message, one event a line",
		RunE: c.remote(func(c *call) error {
			id, err := c.messageID()
			if err != nil {
				return err
			}
			events, err := c.broker.History(c.ctx(), id)
			if err != nil {
				return err
			}
			return c.show(api.History{MessageID: id, Events: events}, func(t *table) {
				t.row("POSITION", "TIME", "WHAT HAPPENED", "ACTOR", "REASON")
				for _, e := range events {
					t.row(e.Position, e.At, happened(e), orNone(e.Actor), eventReason(e))
				}
			})
		}),
	}
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
func happened(e api.Event) string {
	switch eventstore.Kind(e.Kind) {
	case eventstore.MessagePublished:
		text := "published to " + e.Channel
		if e.RoutingKey != nil && *e.RoutingKey != "" {
			text += ", key " + plain(*e.RoutingKey)
		}
		if e.DueAt != nil {
			text += ", due " + cellText(e.DueAt)
		}
		if e.ExpiresAt != nil {
			text += ", expires " + cellText(e.ExpiresAt)
		}
		return text
	case eventstore.MessageDelivered:
		return "delivered until " + cellText(e.DueAt)
	case eventstore.MessageExtended:
		return "lease extended until " + cellText(e.DueAt)
	case eventstore.MessageRetried:
		return "failed, due again " + cellText(e.DueAt)
	case eventstore.MessageLeaseExpired:
		return "lease expired, due again " + cellText(e.DueAt)
	case eventstore.MessageReleased:
		return "released"
	case eventstore.MessageDeadLettered:
		return "dead-lettered"
	default:
		return shortKind(e.Kind)
	}
}

// eventReason is what an event says of why it happened.
func eventReason(e api.Event) string {
	var data struct{ Reason, Detail, ErrorClass string }
	if len(e.Data) == 0 {
		return none
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return plain(string(e.Data)) // of a later version: as it is
	}
	return reasonText(data.Reason, data.Detail, data.ErrorClass)
}

func messageCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "message <message-id>",
		Short: "Say where a message is now",
		RunE: c.remote(func(c *call) error {
			id, err := c.messageID()
			if err != nil {
				return err
			}
			message, err := c.broker.Message(c.ctx(), id)
			if err != nil {
				return err
			}
			return c.show(message, func(t *table) { messageTable(t, message) })
		}),
	}
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
