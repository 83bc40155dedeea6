package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"leat/api"
	"leat/commands"
	"leat/eventstore"
)

// Ways to reach the broker.
const (
	ViaCommands = "commands" // Go commands in this process
	ViaHTTP     = "http"     // the HTTP API on a loopback port, through the Go client
)

// Config says what to measure and where. URL and Start are required.
type Config struct {
	// URL leads to a PostgreSQL server where scratch databases may be made, in
	// the form postgres://.
	URL string
	// Start wires a broker on a migrated database.
	Start func(ctx context.Context, url string, with Parts) (*Node, error)
	// Replay is the program that writes the log of the broker at a URL, up to a
	// position, as NDJSON to its output. Required for audit/replay.
	Replay func(ctx context.Context, url string, to eventstore.Position) *exec.Cmd
	// Only names the cases to run: whole names, first parts of names, or
	// patterns of path.Match. Default: all.
	Only []string
	// Via lists the ways to reach the broker. Default: ViaCommands.
	Via []string
	// Mode of the queues. Default: commands.Standard.
	Mode string
	// Keys is how many routing keys are used in turn. Default: 1, or 1,000 in
	// FIFO queues, where a key has one delivery in flight.
	Keys int
	// Payload is the size of a payload in bytes, from MinPayload to MaxPayload.
	// Default 256.
	Payload int
	// Fill is the size of the batches in which the messages of a drain were
	// published. Default 100.
	Fill int
	// Messages of a sample. Default 0: publishes run for Duration, and drains
	// have as many messages as suit their batch.
	Messages int
	// Duration of a sample that runs for a time. Default 700 ms.
	Duration time.Duration
	// Rounds that each case is repeated. Default 3.
	Rounds int
	// Events of the log that the audit cases read, from MinEvents to MaxEvents.
	// Default 1,000,000.
	Events int
	// Scale divides the sizes of large set-ups: a queue of 1,000,000 messages has
	// 1,000,000/Scale. Default 1.
	Scale int
	// Progress is told what begins. Default: nobody is told.
	Progress func(Step)
}

// MinPayload holds a time in digits and two quotes: payloads are JSON strings.
// MaxPayload is one of which 1,000 fit into a request.
const (
	MinPayload = 24
	MaxPayload = 16_000
)

// Bounds of Config.Events: what the sides of audit/message need, and what a disk has room for.
const (
	MinEvents = 10_000
	MaxEvents = 1_000_000_000
)

// Parts are what a broker does beside serving its channels.
type Parts struct {
	Projections bool          // whether it keeps the asynchronous ones
	Seal        time.Duration // how old an event may be without a seal; 0 makes none
}

// Node is one running broker.
type Node struct {
	Commands *commands.Broker
	Pool     *pgxpool.Pool // closed by the bench when Run has returned
	Streams  api.Streams   // of the same broker
	// Run serves the HTTP API, and does what a broker does by itself, until the
	// context ends.
	Run func(ctx context.Context, listener net.Listener) error
}

// Step is one sample of one side of a case that is about to be taken.
type Step struct {
	Done, Total int
	Name        string
}

// Quick makes what is not set yet so small that everything takes seconds, and
// proves nothing but that it works.
func (c *Config) Quick() {
	c.Messages, c.Rounds, c.Scale = or(c.Messages, 100), or(c.Rounds, 1), or(c.Scale, 1000)
}

func (c *Config) complete() error {
	c.Mode = or(c.Mode, commands.Standard)
	keys := 1
	if c.Mode == commands.FIFO {
		keys = 1000
	}
	c.Keys = or(c.Keys, keys)
	c.Payload = or(c.Payload, 256)
	c.Fill = or(c.Fill, 100)
	c.Duration = or(c.Duration, 700*time.Millisecond)
	c.Rounds = or(c.Rounds, 3)
	c.Events = or(c.Events, 1_000_000)
	c.Scale = or(c.Scale, 1)
	if len(c.Via) == 0 {
		c.Via = []string{ViaCommands}
	}
	if c.Progress == nil {
		c.Progress = func(Step) {}
	}
	return c.check()
}

// or is value, or fallback where that is zero.
func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Validate reports the first setting that cannot be.
func (c Config) Validate() error { return c.complete() }

func (c *Config) check() error {
	for _, via := range c.Via {
		if via != ViaCommands && via != ViaHTTP {
			return fmt.Errorf("via %q must be %s or %s", via, ViaCommands, ViaHTTP)
		}
	}
	for _, pattern := range c.Only {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("only %q: %w", pattern, err)
		}
	}
	limits := commands.DefaultLimits()
	switch {
	case c.Mode != commands.Standard && c.Mode != commands.FIFO:
		return fmt.Errorf("mode %q must be %s or %s", c.Mode, commands.Standard, commands.FIFO)
	case c.Keys < 1 || c.Keys > 1_000_000:
		return errors.New("keys must be from 1 to 1,000,000")
	case c.Payload < MinPayload || c.Payload > MaxPayload:
		return fmt.Errorf("payload must be from %d to %d bytes", MinPayload, MaxPayload)
	case c.Fill < 1 || c.Fill > limits.RequestMessages || c.Fill*c.Payload > limits.RequestBytes:
		return fmt.Errorf("fill must be from 1 to %d messages, of %d bytes in all", limits.RequestMessages, limits.RequestBytes)
	case c.Messages < 0:
		return errors.New("messages must be 0 or more")
	case c.Duration < 0:
		return errors.New("duration must be more than 0")
	case c.Events < MinEvents || c.Events > MaxEvents:
		return fmt.Errorf("events must be from %d to %d", MinEvents, MaxEvents)
	case c.Rounds < 1 || c.Scale < 1:
		return errors.New("rounds must be 1 or more")
	case c.URL != "" && !isURL(c.URL):
		return errNotURL
	}
	all := newLab(*c)
	for _, pattern := range c.Only {
		if !slices.ContainsFunc(all.works(), func(one work) bool { return matches(pattern, one.name) }) {
			return fmt.Errorf("nothing to measure: only %s matches none of %s", pattern, all.names())
		}
	}
	return nil
}

// cases are those to be run.
func (c *Config) cases(all []work) []work {
	return slices.DeleteFunc(all, func(one work) bool { return !c.wants(one.name) })
}

// wants reports whether a case is to be run.
func (c *Config) wants(name string) bool {
	return len(c.Only) == 0 || slices.ContainsFunc(c.Only, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	matched, _ := path.Match(pattern, name) // the pattern was checked
	return matched || strings.HasPrefix(name, strings.TrimSuffix(pattern, "/")+"/")
}

// Run measures and reports. When the context ends it returns its error, after
// everything it made is gone.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	lab, err := openLab(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.close(ctx)) }()
	report = lab.newReport()
	cases := cfg.cases(lab.works())
	done, total := 0, 0
	for _, one := range cases {
		total += len(one.sides) * cfg.Rounds
	}
	for _, one := range cases {
		samples, err := lab.measure(ctx, one, func(side string) {
			cfg.Progress(Step{Done: done, Total: total, Name: one.name + " " + side})
			done++
		})
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", one.name, err)
		}
		report.add(one, samples)
	}
	report.judge()
	return report, nil
}
