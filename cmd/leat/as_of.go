package main

import (
	"time"

	"github.com/spf13/cobra"

	"leat/eventstore"
)

// asOfFlag is a flag whose value is a moment of the past: a position of the log, a
// time, or how long ago.
type asOfFlag string

// addAsOf gives a command the flag.
func addAsOf(cmd *cobra.Command) *asOfFlag {
	f := new(asOfFlag)
	cmd.Flags().Var(f, "as-of", "as it was at this position of the log, at this time, or so long ago")
	return f
}

// String, Set and Type make it a flag.
func (f *asOfFlag) String() string { return string(*f) }

// Set reads it.
func (f *asOfFlag) Set(text string) error {
	if p, err := eventstore.ParsePosition(text); err == nil && p > 0 {
		*f = asOfFlag(text)
		return nil
	}
	var at moment
	if err := at.Set(text); err != nil {
		return err
	}
	*f = asOfFlag(at.UTC().Format(time.RFC3339Nano))
	return nil
}

// Type is how --help names the value.
func (f *asOfFlag) Type() string { return "position|time|age" }

// lookAt makes the call one that looks into the past.
func (f *asOfFlag) lookAt(c *call) {
	if *f != "" {
		c.broker = c.broker.AsOf(string(*f))
	}
}
