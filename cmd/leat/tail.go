package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

func tailCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail <stream>",
		Short: "Print the messages of a stream as they come",
		Long: "Print the messages of a stream as they come, until it is interrupted. With --point it goes on\n" +
			"where the last one of that name ended, whatever ended it: a message is committed after it was\n" +
			"printed. A lost connection is made again, and told on stderr.\n\n" +
			"Members of a group share a stream: all name the same --point, and the first one --partitions.",
	}
	var config client.SubscribeConfig
	flags := cmd.Flags()
	flags.StringVar(&config.From, "from", "", "where to begin: earliest, latest, an offset, a time, or an age such as 15m (default latest); a point that exists counts more")
	flags.Int64Var((*int64)(&config.Epoch), "epoch", 0, "refuse to read if the stream is another one than this (default: any)")
	flags.StringVarP(&config.Point, "point", "p", "", "the replication point to go on from and to commit to; it is made if there is none")
	flags.IntVar(&config.Partitions, "partitions", 0, "make the point one of a group, of so many parts, 2 to 64")
	flags.StringVar(&config.Member, "member", "", "the name of this one towards the point (default: drawn)")
	flags.StringVarP(&config.Key, "key", "k", "", "only routing keys of this pattern: words split by dots, * is one word, # zero or more")
	commit := flags.Bool("commit", true, "commit what was printed to the point")
	count := flags.IntP("count", "n", 0, "end after so many messages")
	cmd.RunE = c.remote(func(c *call) error {
		config.NoCommit = !*commit
		if err := checkTailFlags(cmd, &config, *count); err != nil {
			return err
		}
		return tail(c, config, *count)
	})
	return cmd
}

func checkTailFlags(cmd *cobra.Command, config *client.SubscribeConfig, count int) error {
	for _, name := range []string{"commit", "partitions", "member"} {
		if cmd.Flags().Changed(name) && config.Point == "" {
			return wrongUsage(cmd, "--%s goes with --point", name)
		}
	}
	if cmd.Flags().Changed("partitions") && (config.Partitions < 2 || config.Partitions > 64) {
		return wrongUsage(cmd, "--partitions must be from 2 to 64")
	}
	if cmd.Flags().Changed("count") && count < 1 {
		return wrongUsage(cmd, "--count must be at least 1")
	}
	if age, err := time.ParseDuration(config.From); err == nil && age > 0 {
		config.From = time.Now().Add(-age).UTC().Format(time.RFC3339Nano)
	}
	return nil
}

func tail(c *call, config client.SubscribeConfig, count int) error {
	n := &notes{to: c.cmd.ErrOrStderr()}
	config.FailFast = true
	config.OnLost = n.lost
	config.OnSubscribed = func(f api.SubscribedFrame) { n.connected(fmt.Sprintf("at offset %d", f.Next)) }
	if !c.json {
		config.OnAssigned = func(partitions []int) { n.say("partitions %d", partitions) }
	}
	printed := 0
	handle := func(_ context.Context, batch []client.Message) error {
		var text []byte
		for i := range batch {
			text = c.appendStreamMessage(text, &batch[i].StreamMessage)
		}
		if _, err := c.out.Write(text); err != nil {
			return fmt.Errorf("write messages: %w", err)
		}
		if printed += len(batch); count > 0 && printed >= count {
			return client.ErrStop
		}
		return nil
	}
	config.MaxBatch = 500
	if count > 0 {
		config.MaxBatch = 1 // what is not printed is not committed
	}
	err := c.broker.SubscribeBatches(c.ctx(), c.args[0], config, handle)
	return endOfStream(c.ctx(), err, count > 0 && printed >= count)
}

// endOfStream is what the end of a live command means.
func endOfStream(ctx context.Context, err error, complete bool) error {
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return nil // whoever read has seen enough
	case err == nil && !complete:
		return context.Cause(ctx)
	default:
		return err
	}
}

// appendStreamMessage appends one line.
func (p printer) appendStreamMessage(text []byte, m *api.StreamMessage) []byte {
	if !p.json {
		return fmt.Appendf(text, "%d  %s  %s  %s\n", m.Offset, cellText(m.PublishedAt), orNone(m.RoutingKey), wholePayload(m.Content))
	}
	line := *m
	line.Content = inOneLine(m.Content)
	return append(line.AppendJSON(text), '\n')
}

// inOneLine is a content whose JSON has no line breaks.
func inOneLine(c api.Content) api.Content {
	if bytes.ContainsAny(c.Payload, "\r\n") {
		payload := []byte(c.Payload)
		c.Payload, c.PayloadBase64 = nil, &payload
	}
	return c
}

// wholePayload is a payload that cannot disturb a terminal.
func wholePayload(c api.Content) string {
	payload := c.Bytes()
	if len(payload) == 0 {
		return none
	}
	if !utf8.Valid(payload) {
		return fmt.Sprintf("(%d bytes)", len(payload))
	}
	return plain(string(payload))
}

// notes tell how a connection does, to people beside the output.
type notes struct {
	to   io.Writer
	away bool
}

func (n *notes) say(format string, args ...any) { fmt.Fprintf(n.to, "leat: "+format+"\n", args...) }

// lost is said once, not at each try.
func (n *notes) lost(err error, _ time.Duration) {
	if !n.away {
		n.say("%v; connecting again", err)
	}
	n.away = true
}

func (n *notes) connected(where string) {
	if n.away {
		n.say("connected again, %s", where)
	}
	n.away = false
}
