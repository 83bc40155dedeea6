package main

import (
	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

func circuitCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "circuit",
		Short: "List, open and close the circuits of FIFO keys",
		Long: "List, open and close the circuits of FIFO keys. When a message of a key dies, the circuit of the\n" +
			"key opens: the rest of the key goes to the dead letters, in order, until the circuit closes.",
	}
	cmd.AddCommand(circuitListCommand(c), circuitOpenCommand(c), circuitCloseCommand(c))
	return cmd
}

func circuitListCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the circuits that are not closed"}
	var filter client.CircuitsFilter
	flags := cmd.Flags()
	flags.StringVarP(&filter.Channel, "queue", "q", "", "only circuits of this queue")
	key := flags.StringP("key", "k", "", "only circuits of this routing key")
	flags.StringVar(&filter.State, "state", "", "only open, halfOpen or closing ones")
	flags.IntVarP(&filter.Limit, "limit", "n", 100, "at most this many, 1 to 1000")
	flags.StringVar(&filter.Cursor, "cursor", "", "go on where the page before ended")
	past := addAsOf(cmd)
	cmd.RunE = c.remote(func(c *call) error {
		past.lookAt(c)
		if filter.Limit < 1 || filter.Limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		filter.RoutingKey = given(cmd, "key", key)
		page, err := c.broker.Circuits(c.ctx(), filter)
		if err != nil {
			return err
		}
		return c.show(page, func(t *table) {
			t.row("QUEUE", "KEY", "STATE", "MESSAGE", "REASON", "SINCE", "TRIES AT")
			for _, k := range page.Circuits {
				message := none
				if k.MessageID != 0 {
					message = k.MessageID.String()
				}
				t.row(k.Channel, plain(k.RoutingKey), k.State, message, orNone(k.Reason), k.OpenedAt, k.ProbeAt)
			}
			more(t, page.NextCursor)
		})
	})
	return cmd
}

func circuitOpenCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "open <queue> <routing-key>",
		Short: "Send what waits under a key, and what comes, to the dead letters",
		Long: "Send what waits under a key, and what comes, to the dead letters. A circuit that was opened by\n" +
			"hand stays open until it is closed by hand.",
		RunE: c.remote(func(c *call) error {
			result, err := c.broker.OpenCircuit(c.ctx(), c.args[0], c.args[1])
			if err != nil {
				return err
			}
			if !result.Changed {
				return c.say(result, "it was open before")
			}
			return c.say(result, "open; %d messages went to the dead letters", result.Messages)
		}),
	}
}

func circuitCloseCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "close <queue> <routing-key>",
		Short: "Let a key go on, with its dead letters or without",
	}
	revive := cmd.Flags().Bool("recover", false, "recover the dead letters of the key, in order, before what comes now")
	cmd.RunE = c.remote(func(c *call) error {
		result, err := c.broker.CloseCircuit(c.ctx(), c.args[0], c.args[1], api.CloseCircuitRequest{Recover: *revive})
		if err != nil {
			return err
		}
		if !result.Changed {
			return c.say(result, "it was closed before")
		}
		return c.say(result, "closed; %d messages recovered", result.Messages)
	})
	return cmd
}
