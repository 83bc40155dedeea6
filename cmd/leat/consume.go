package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"leat/api"
	"leat/api/client"
)

// consumeFlags say what becomes of the messages.
type consumeFlags struct {
	client.ConsumeConfig
	count   int
	noAck   bool
	command string
}

func consumeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume <queue>",
		Short: "Take the messages of a queue as they come",
		Long: "Take the messages of a queue as they come, until it is interrupted: print and ack each, or run\n" +
			"a command for each with --exec.\n\n" +
			"The command is run by sh with the payload as its stdin, and LEAT_QUEUE, LEAT_MESSAGE_ID,\n" +
			"LEAT_ROUTING_KEY, LEAT_ATTEMPT, LEAT_CONTENT_TYPE and LEAT_HEADERS (JSON) in its environment.\n" +
			"Exit code 0 acks the message, another one brings it again as the queue's retry policy says. The\n" +
			"lease is extended while the command runs. A lost connection is made again, and told on stderr.",
	}
	var f consumeFlags
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 0, "end after so many messages")
	flags.BoolVar(&f.noAck, "no-ack", false, "print only, and give the messages back at the end, without counting an attempt")
	flags.StringVar(&f.command, "exec", "", "run this command for each message")
	flags.IntVar(&f.Concurrency, "concurrency", 1, "commands to run at once, 1 to 1000")
	flags.IntVar(&f.Prefetch, "prefetch", 0, "messages to take ahead, 1 to 1000 (default: twice the concurrency, and at least 20)")
	flags.DurationVar(&f.Lease, "lease", 0, "how long they are yours; it is extended (default: the queue's)")
	flags.StringArrayVarP(&f.RoutingKeys, "key", "k", nil, "only messages of this routing key; once for each")
	cmd.RunE = c.remote(func(c *call) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		return consume(c, f)
	})
	return cmd
}

func (f *consumeFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case f.noAck && f.command != "":
		return wrongUsage(cmd, "--no-ack does not go with --exec")
	case changed("concurrency") && f.command == "":
		return wrongUsage(cmd, "--concurrency goes with --exec")
	case f.Concurrency < 1 || f.Concurrency > 1000:
		return wrongUsage(cmd, "--concurrency must be from 1 to 1000")
	case changed("prefetch") && (f.Prefetch < 1 || f.Prefetch > 1000):
		return wrongUsage(cmd, "--prefetch must be from 1 to 1000")
	case changed("count") && f.count < 1:
		return wrongUsage(cmd, "--count must be at least 1")
	case changed("lease") && f.Lease <= 0:
		return wrongUsage(cmd, "--lease must be more than 0")
	}
	if f.noAck { // each that waits for the end holds a handler
		if f.Prefetch == 0 {
			f.Prefetch = 1000
		}
		f.Concurrency = f.Prefetch
	}
	return nil
}

// eater handles messages until it has had enough.
type eater struct {
	*call
	consumeFlags
	enough context.CancelFunc

	mu           sync.Mutex
	begun, ended int
}

func consume(c *call, f consumeFlags) error {
	n := &notes{to: c.cmd.ErrOrStderr()}
	f.FailFast = true
	f.OnLost = n.lost
	f.OnConsuming = func(api.ConsumingFrame) { n.connected("at " + c.args[0]) }
	ctx, enough := context.WithCancel(c.ctx())
	defer enough()
	e := &eater{call: c, consumeFlags: f, enough: enough}
	handle := e.print
	switch {
	case f.noAck:
		handle = e.look
		f.Grace = time.Nanosecond // they only wait for the end
	case f.command != "":
		handle = e.execute
	}
	var failed error
	err := c.broker.Consume(ctx, c.args[0], f.ConsumeConfig, func(handling context.Context, d api.Delivery) error {
		if !e.take() {
			<-ctx.Done()
			return client.ErrRelease
		}
		err := handle(handling, d)
		if write, ok := errors.AsType[*writeError](err); ok {
			e.mu.Lock()
			failed = write
			e.mu.Unlock()
			enough()
			<-ctx.Done()
			return client.ErrRelease
		}
		e.finish()
		return err
	})
	if failed != nil {
		err = failed
	}
	return endOfStream(c.ctx(), err, f.count > 0 && e.ended >= f.count)
}

// take says whether one more may begin.
func (e *eater) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun++
	return e.count == 0 || e.begun <= e.count
}

func (e *eater) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended++
	if e.ended == e.count {
		e.enough()
	}
}

// writeError is about our own output: the message was not seen.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func (e *eater) print(_ context.Context, d api.Delivery) error {
	line := d
	line.Content = inOneLine(d.Content)
	text := append(line.AppendJSON(nil), '\n')
	if !e.json {
		text = fmt.Appendf(nil, "%d  %s  %d  %s\n", d.MessageID, orNone(d.RoutingKey), d.Attempt, wholePayload(d.Content))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.out.Write(text); err != nil {
		return &writeError{fmt.Errorf("write message: %w", err)}
	}
	return nil
}

// look prints a message and keeps it until the end, so that it does not come
// back at once.
func (e *eater) look(ctx context.Context, d api.Delivery) error {
	if err := e.print(ctx, d); err != nil {
		return err
	}
	e.finish()
	<-ctx.Done()
	return client.ErrRelease
}

// execute runs the command. It is told to end when the message is lost, or the
// time to finish is over.
func (e *eater) execute(ctx context.Context, d api.Delivery) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", e.command)
	cmd.Env = append(os.Environ(),
		"LEAT_QUEUE="+d.Channel,
		"LEAT_MESSAGE_ID="+d.MessageID.String(),
		"LEAT_ROUTING_KEY="+d.RoutingKey,
		fmt.Sprintf("LEAT_ATTEMPT=%d", d.Attempt),
		"LEAT_CONTENT_TYPE="+d.ContentType,
		"LEAT_HEADERS="+string(d.Headers),
	)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	cmd.Stdout, cmd.Stderr = e.out, e.cmd.ErrOrStderr()
	// A terminal's interrupt is for us: the command may finish.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopWithin
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	_, writeErr := stdin.Write(d.Bytes())
	if closeErr := stdin.Close(); writeErr == nil {
		writeErr = closeErr
	}
	err = cmd.Wait()
	if err == nil && writeErr != nil && !errors.Is(writeErr, syscall.EPIPE) && !errors.Is(writeErr, io.ErrClosedPipe) {
		err = fmt.Errorf("write payload: %w", writeErr)
	}
	if err != nil {
		fmt.Fprintf(e.cmd.ErrOrStderr(), "leat: message %d: %v\n", d.MessageID, err)
	}
	return err
}
