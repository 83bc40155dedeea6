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
	if err := c.onTerminal(); err != nil {
		return err
	}
	channel, err := c.broker.Channel(c.ctx(), c.args[0])
	if err != nil {
		return err
	}
	n := countsOf(channel)
	return c.confirm(fmt.Sprintf("Remove %d ready and %d delayed messages of %s?", n.Ready, n.Delayed, channel.Name))
}

// onTerminal refuses to ask anywhere else.
func (c *call) onTerminal() error {
	if file, ok := c.cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return wrongUsage(c.cmd, "%s asks on a terminal only: give --yes", c.cmd.Name())
	}
	return nil
}

// confirm asks on a terminal.
func (c *call) confirm(question string) error {
	if err := c.onTerminal(); err != nil {
		return err
	}
	fmt.Fprintf(c.cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(c.cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotPurged
	}
	return nil
}
