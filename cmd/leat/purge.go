package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"leat/api"
)

func purgeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge <queue>",
		Short: "Remove what is ready or delayed; what is in flight or dead stays",
		Long:  "Remove what is ready or delayed; what is in flight or dead stays. Asks first, on a terminal;\nelsewhere it needs --yes. The log keeps every message.",
	}
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask")
	cmd.RunE = c.remote(func(c *call) error {
		if !*yes {
			if err := c.confirmPurge(); err != nil {
				return err
			}
		}
		purged, err := c.broker.Purge(c.ctx(), c.args[0])
		if err != nil {
			return err
		}
		return c.say(api.PurgeResult{Purged: purged}, "%d messages removed", purged)
	})
	return cmd
}

var errNotPurged = errors.New("nothing was removed")

func (c *call) confirmPurge() error {
	in := c.cmd.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return wrongUsage(c.cmd, "purge asks on a terminal only: give --yes")
	}
	channel, err := c.broker.Channel(c.ctx(), c.args[0])
	if err != nil {
		return err
	}
	n := countsOf(channel)
	fmt.Fprintf(c.cmd.ErrOrStderr(), "Remove %d ready and %d delayed messages of %s? [y/N] ", n.Ready, n.Delayed, channel.Name)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotPurged
	}
	return nil
}
