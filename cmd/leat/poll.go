package main

import (
	"time"

	"github.com/spf13/cobra"

	"leat/api"
)

func pollCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "poll <queue>",
		Short: "Take messages under a lease",
		Long: "Take messages under a lease. Settle them by their receipts, with ack, nack or release,\n" +
			"before it ends. Exit code 4: no message came.",
	}
	flags := cmd.Flags()
	most := flags.IntP("max", "n", 1, "at most this many messages, 1 to 1000")
	wait := flags.Duration("wait", 0, "how long to wait for the first one, up to 1m")
	lease := flags.Duration("lease", 0, "how long they are yours (default: the queue's)")
	keys := flags.StringArrayP("key", "k", nil, "only messages of this routing key; once for each")
	cmd.RunE = c.remote(func(c *call) error {
		request := api.PollRequest{
			Max: most, Wait: api.Duration(*wait), Lease: (*api.Duration)(given(cmd, "lease", lease)), RoutingKeys: *keys,
		}
		deliveries, err := c.broker.Poll(c.ctx(), c.args[0], request)
		if err != nil {
			return err
		}
		if len(deliveries) == 0 && !c.json {
			return errNothing
		}
		if err := c.show(api.PollResult{Deliveries: deliveries}, func(t *table) { deliveryTable(t, deliveries) }); err != nil {
			return err
		}
		if len(deliveries) == 0 {
			return errNothing
		}
		return nil
	})
	return cmd
}

func deliveryTable(t *table, deliveries []api.Delivery) {
	t.row("RECEIPT", "MESSAGE", "KEY", "ATTEMPT", "LEASE LEFT", "PAYLOAD")
	for _, d := range deliveries {
		left := time.Until(d.LeaseUntil).Round(time.Second)
		t.row(d.Receipt, d.MessageID, plain(d.RoutingKey), d.Attempt, left, preview(d.Content))
	}
}
