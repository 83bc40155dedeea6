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
	views := "whole"
	if !s.ViewsAlive {
		views = "being rebuilt from the log"
	}
	t.row("version", s.Version)
	t.row("database", fmt.Sprintf("%s on PostgreSQL %s", plain(s.Database.Name), s.Database.ServerVersion))
	t.row("database URL", orNone(s.DatabaseURL))
	t.row("last position", s.LastPosition)
	t.row("settled position", s.SettledPosition)
	t.row("checkpoint", s.Checkpoint)
	t.row("queue views", views)
	t.row("vacuum horizon", horizonText(s.Horizon))
	t.row("sessions", sessionsText(s.Sessions))
}

func horizonText(h *api.Holder) string {
	if h == nil {
		return "held by no session"
	}
	return fmt.Sprintf("held by pid %d (%s, database %s, %s) since %s",
		h.PID, orNone(h.Application), orNone(h.Database), orNone(h.State), cellText(h.Since))
}

func sessionsText(sessions []api.Sessions) string {
	texts := make([]string, len(sessions))
	for i, s := range sessions {
		texts[i] = fmt.Sprintf("%s %d", plain(s.Application), s.Count)
	}
	return orNone(strings.Join(texts, ", "))
}
