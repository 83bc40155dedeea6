package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// usageError says that a command was called in a wrong way, before anything was
// tried.
type usageError struct {
	cmd *cobra.Command // nil when it is about none in particular
	err error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// hint tells how it would be right.
func (e *usageError) hint(w io.Writer) {
	if e.cmd == nil {
		return
	}
	if !e.cmd.HasSubCommands() {
		fmt.Fprintf(w, "  usage: %s\n", e.cmd.UseLine())
	}
	fmt.Fprintf(w, "  see %s --help\n", e.cmd.CommandPath())
}

func wrongUsage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd, fmt.Errorf(format, args...)}
}

// checkUsage makes wrong usage of a command, and of those below it, a
// *usageError.
func checkUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd, err} })
	if cmd.HasSubCommands() {
		cmd.Args = subcommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else {
		cmd.Args = positional
	}
	for _, below := range cmd.Commands() {
		checkUsage(below)
	}
}

// subcommand is what a command gets that only has others below it: nothing.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += ", do you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{cmd, errors.New(text)}
}

// positional holds the arguments against their names in Use: <name> is needed,
// [name] may be left out, and after three dots there may be more.
func positional(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	for i, name := range names {
		if strings.HasPrefix(name, "<") && i >= len(args) {
			return wrongUsage(cmd, "%s needs %s", cmd.CommandPath(), strings.TrimSuffix(name, "..."))
		}
	}
	more := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
	if len(args) > len(names) && !more {
		return wrongUsage(cmd, "%s does not take %q", cmd.CommandPath(), args[len(names)])
	}
	return nil
}
