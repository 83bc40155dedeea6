package main

import (
	"context"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/eventstore"
)

func verifyCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the queue views with the log, or with --chain the log with its seals",
		Long: "Compare the queue views with the log, message by message. Changes nothing.\nExit code 3: they differ.\n\n" +
			"With --chain, hold the log against its seals: digests that cover all events, each over the one before.\n" +
			"What was changed, removed or added since is found, and where. Who rewrites all of the chain is found only by a\n" +
			"digest that was kept elsewhere: note the last one, and give it with --expect another time.\n" +
			"Exit code 3: something is not as it was sealed. Exit code 4: there are no seals (leat serve --seal makes them).",
		Example: `  leat verify
  leat verify --chain -o json | tee chain.json
  leat verify --chain --expect 5e0c8c…`,
	}
	limit := cmd.Flags().Int("limit", 100, "show at most this many differences, 1 to 1000")
	fromCheckpoint := cmd.Flags().Bool("from-checkpoint", false, "read only what came after the last checkpoint, not the whole log")
	chain := cmd.Flags().Bool("chain", false, "hold the log against its seals")
	expect := cmd.Flags().String("expect", "", "with --chain: the digest of a seal that has to be there")
	c.onViews(cmd, func(ctx context.Context, k keeper, p printer) error {
		if *limit < 1 || *limit > 1000 {
			return wrongUsage(cmd, "--limit must be from 1 to 1000")
		}
		if *expect != "" {
			if _, err := eventstore.ParseDigest(*expect); err != nil || !*chain {
				return wrongUsage(cmd, "--expect takes a digest of 64 hexadecimal digits, with --chain")
			}
		}
		if *chain {
			return verifyChain(ctx, k, p, *expect, *limit)
		}
		return verifyViews(ctx, k, p, *fromCheckpoint, *limit)
	})
	return cmd
}

func verifyViews(ctx context.Context, k keeper, p printer, fromCheckpoint bool, limit int) error {
	done := spin("verifying")
	result, err := k.Verify(ctx, fromCheckpoint, limit)
	done()
	if err != nil {
		return err
	}
	if err := p.show(result, func(t *table) { differences(t, result) }); err != nil {
		return err
	}
	if !result.Equal {
		return errDifferent
	}
	return nil
}

func differences(t *table, result api.VerifyResult) {
	if result.Equal {
		t.row("the queue views are what the log says")
		return
	}
	t.row("MESSAGE", "SAYS", "WHAT")
	for _, d := range result.Differences {
		t.row(d.MessageID, "log", orNone(string(d.Log)))
		t.row("", "view", orNone(string(d.View)))
	}
}
