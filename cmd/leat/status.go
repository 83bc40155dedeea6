package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
)

func statusCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "How the broker and its database are",
		Long: "How the broker and its database are. psql can join in with the database URL; the one of\n" +
			"the private PostgreSQL is a socket that lets the user of leat serve in without a password.",
		RunE: c.remote(func(c *call) error {
			status, err := c.broker.Status(c.ctx())
			if err != nil {
				return err
			}
			return c.show(status, func(t *table) { statusTable(t, status) })
		}),
	}
}

func statusTable(t *table, s api.Status) {
	t.row("version", fmt.Sprintf("%s, running since %s", s.Version, cellText(s.StartedAt)))
	t.row("database", fmt.Sprintf("%s on PostgreSQL %s, running since %s",
		plain(s.Database.Name), s.Database.ServerVersion, cellText(s.Database.StartedAt)))
	t.row("database URL", orNone(s.DatabaseURL))
	t.row("last position", fmt.Sprintf("%d, with partitions up to %d", s.LastPosition, s.PartitionedTo))
	t.row("settled position", settledText(s))
	t.row("checkpoint", checkpointText(s))
	if s.Restored != nil {
		t.row("restored", fmt.Sprintf("found %s, at position %d: this database is not the one that it was", cellText(&s.Restored.At), s.Restored.Position))
	}
	t.row("queue views", viewsText(s))
	t.row("open circuits", openCircuitsText(s))
	t.row("vacuum horizon", holderText(s.Horizon))
	t.row("tail", tailText(s.Tail))
	t.row("brokers", brokersText(s.Brokers))
	t.row("projections", projectionsText(s.Projections))
	t.row("sessions", sessionsText(s.Sessions))
}

func settledText(s api.Status) string {
	if s.SettledHolder == nil {
		return s.SettledPosition.String()
	}
	return fmt.Sprintf("%d, %s", s.SettledPosition, holderText(s.SettledHolder))
}

func checkpointText(s api.Status) string {
	if s.CheckpointAt == nil {
		return none
	}
	return fmt.Sprintf("%d, written %s", s.Checkpoint, cellText(s.CheckpointAt))
}

func viewsText(s api.Status) string {
	switch {
	case !s.ViewsAlive:
		return "being rebuilt from the log"
	case s.Unplaced > 0:
		return fmt.Sprintf("whole, but for %d messages that are being placed", s.Unplaced)
	default:
		return "whole"
	}
}

func openCircuitsText(s api.Status) string {
	if s.OpenCircuits == 0 {
		return none
	}
	return fmt.Sprintf("%d: leat circuit list shows them", s.OpenCircuits)
}

func holderText(h *api.Holder) string {
	if h == nil {
		return "held by no session"
	}
	who := fmt.Sprintf("pid %d, %s", h.PID, orNone(h.Application))
	if h.PID == 0 {
		who = "prepared transaction " + plain(h.Application)
	}
	return fmt.Sprintf("held by %s (database %s, %s) since %s", who, orNone(h.Database), orNone(h.State), cellText(h.Since))
}

func tailText(tail api.Tail) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s since %s", tail.Mode, cellText(tail.Since))
	if tail.Slot != "" {
		fmt.Fprintf(&text, ": slot %s (%s), %d bytes behind", plain(tail.Slot), tail.Decoder, tail.LagBytes)
	}
	if tail.Reason != "" {
		fmt.Fprintf(&text, ": %s", plain(tail.Reason))
	}
	if tail.Reconnects > 0 {
		fmt.Fprintf(&text, "; slots lost: %d", tail.Reconnects)
	}
	return text.String()
}

func brokersText(brokers []api.Broker) string {
	modes := map[string]int{}
	for _, b := range brokers {
		modes[b.Tail]++
	}
	return fmt.Sprintf("%d: %d wal, %d notify", len(brokers), modes["wal"], modes["notify"])
}

func sessionsText(sessions []api.Sessions) string {
	texts := make([]string, len(sessions))
	for i, s := range sessions {
		texts[i] = fmt.Sprintf("%s %d", plain(s.Application), s.Count)
	}
	return orNone(strings.Join(texts, ", "))
}
