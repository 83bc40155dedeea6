package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func logCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Keep the log: look at its partitions, seal it",
	}
	cmd.AddCommand(logShowCommand(c), logSealCommand(c))
	return cmd
}

func logShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "The partitions of the log, and what keeps each of them",
		Long: "The partitions of the log, and what keeps each of them. Partitions are dropped from the beginning of the log,\n" +
			"by leat serve --log-retention: what keeps one keeps all behind it.",
		RunE: c.remote(func(c *call) error {
			log, err := c.broker.Log(c.ctx())
			if err != nil {
				return err
			}
			return c.show(log, func(t *table) { logTable(t, log) })
		}),
	}
}

func logTable(t *table, log api.Log) {
	t.row("begins at", log.Begin)
	if log.Seal == nil {
		t.row("sealed", none)
	} else {
		t.row("sealed to", fmt.Sprintf("%d, at %s", log.Seal.To, cellText(log.Seal.At)))
		t.row("digest", log.Seal.Digest)
	}
	t.row("")
	t.row("POSITIONS", "EVENTS", "BYTES", "FROM", "TO", "SEALED", "ARCHIVED", "KEPT FOR")
	for _, p := range log.Partitions {
		events := none
		if p.Events >= 0 {
			events = fmt.Sprint(p.Events)
		}
		t.row(fmt.Sprintf("%d-%d", p.From, p.To), events, p.Bytes, cellText(p.FirstAt), cellText(p.LastAt),
			yes(p.Sealed), yes(p.Archived), pinsText(p.Pins))
	}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func pinsText(pins []api.LogPin) string {
	if len(pins) == 0 {
		return none
	}
	texts := make([]string, len(pins))
	for i, p := range pins {
		texts[i] = p.What
		if p.Channel != "" {
			texts[i] += fmt.Sprintf(" of %s from %d", plain(p.Channel), p.Position)
		}
	}
	return strings.Join(texts, ", ")
}

// logAPI is what the API needs of the log.
type logAPI struct {
	*eventstore.Store
	retention *eventstore.Retention
}

// State is how the log lies in the database.
func (l logAPI) State(ctx context.Context) (eventstore.LogState, error) {
	return l.retention.State(ctx)
}

func logSealCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "seal",
		Short: "Seal what is not sealed yet, and print the last digest",
		Long: "Seal what is not sealed yet, and print the last digest, which covers all of the log.\n" +
			"Kept elsewhere, it proves later that nothing was changed: leat verify --chain --expect <digest>.",
		RunE: c.remote(func(c *call) error {
			result, err := c.broker.SealLog(c.ctx())
			if err != nil {
				return err
			}
			if result.Seal == nil {
				return c.say(result, "there is nothing to seal")
			}
			return c.show(result, func(t *table) {
				t.row("sealed", fmt.Sprintf("positions up to %d, at %s", result.Seal.To, cellText(result.Seal.At)))
				t.row("digest", result.Seal.Digest)
			})
		}),
	}
}
