package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func logCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Keep the log: seal it",
	}
	cmd.AddCommand(logSealCommand(c))
	return cmd
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
