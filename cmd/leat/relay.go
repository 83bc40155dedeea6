package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"leat/api"
)

func relayCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Move the rows of Watermill's SQL publisher into channels",
		Long: "Move the rows of tables that Watermill's SQL publisher writes into channels, each exactly once: reading\n" +
			"and publishing are one transaction. The running brokers do so; these commands tell them to.",
	}
	cmd.AddCommand(
		relayDeclareCommand(c), relayListCommand(c), relayShowCommand(c), relaySkipCommand(c), relayDeleteCommand(c),
	)
	return cmd
}

func relayDeclareCommand(c *cli) *cobra.Command {
	var spec api.RelaySpec
	cmd := &cobra.Command{Use: "declare <relay>", Short: "Make a relay, or find that it exists with these settings"}
	flags := cmd.Flags()
	flags.StringVar(&spec.Topic, "topic", "", "of the publisher, whose table is watermill_<topic>")
	flags.StringVar(&spec.Table, "table", "", "instead of --topic: the name of the table")
	flags.StringVar(&spec.Schema, "schema", "", "of the table (default where the broker's role finds it, or public)")
	flags.StringVar(&spec.Channel, "to", "", "channel that the rows are published to")
	flags.StringVar(&spec.Key, "key", "", "metadata whose value is the routing key")
	flags.BoolVar(&spec.Delete, "delete", false, "delete the rows that were moved; no long transaction holds such a relay back")
	flags.DurationVar((*time.Duration)(&spec.Every), "every", 0, "between two looks at the table (default 1s)")
	flags.StringVar(&spec.From, "from", "earliest", "earliest, or latest, which leaves out what is in the table already")
	cmd.RunE = c.remote(func(c *call) error {
		if (spec.Topic == "") == (spec.Table == "") || spec.Channel == "" {
			return wrongUsage(cmd, "give --topic or --table, and --to")
		}
		relay, err := c.broker.DeclareRelay(c.ctx(), c.args[0], spec)
		return c.relay(relay, err)
	})
	return cmd
}

func relayListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List relays, with what they moved and what waits",
		RunE: c.remote(func(c *call) error {
			relays, err := c.broker.Relays(c.ctx())
			if err != nil {
				return err
			}
			return c.show(api.RelayList{Relays: relays}, func(t *table) {
				t.row("RELAY", "TABLE", "CHANNEL", "MOVED", "LAG", "FAILURE")
				for i := range relays {
					r := &relays[i]
					t.row(r.Relay, plain(r.Table), r.Channel, r.Moved, r.Lag, failureText(r))
				}
			})
		}),
	}
}

func relayShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show <relay>",
		Short: "Show a relay",
		RunE: c.remote(func(c *call) error {
			relay, err := c.broker.Relay(c.ctx(), c.args[0])
			return c.relay(relay, err)
		}),
	}
}

func relaySkipCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "skip <relay> <offset>",
		Short: "Leave out the next row, which no channel takes",
		Long: "Leave out the next row, which no channel takes and the relay stops at; its failure names the offset.\n" +
			"A relay that deletes rows deletes it.",
		RunE: c.remote(func(c *call) error {
			offset, err := strconv.ParseInt(c.args[1], 10, 64)
			if err != nil {
				return wrongUsage(c.cmd, "%q is not an offset", c.args[1])
			}
			relay, err := c.broker.SkipRelay(c.ctx(), c.args[0], offset)
			return c.relay(relay, err)
		}),
	}
}

func relayDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <relay>",
		Short: "Delete a relay, and how far it was; the table and the channel stay",
		RunE: c.remote(func(c *call) error {
			if err := c.broker.DeleteRelay(c.ctx(), c.args[0]); err != nil {
				return err
			}
			return c.say(struct{}{}, "relay %s is deleted", c.args[0])
		}),
	}
}

func failureText(r *api.Relay) string {
	if r.Failure == "" {
		return none
	}
	return plain(r.Failure)
}

// relay shows a relay, unless there was an error.
func (c *call) relay(r api.Relay, err error) error {
	if err != nil {
		return err
	}
	return c.show(r, func(t *table) {
		t.row("relay", r.Relay)
		t.row("table", plain(r.Table))
		t.row("channel", r.Channel)
		t.row("deletes rows", r.Delete)
		t.row("every", r.Every)
		t.row("moved", r.Moved)
		t.row("lag", r.Lag)
		t.row("failure", failureText(&r))
		if r.RestoredAt != nil {
			t.row("began anew at", *r.RestoredAt)
		}
		t.row("declared at", r.DeclaredAt)
	})
}
