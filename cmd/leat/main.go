package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for the process it runs in; it returns the exit
// code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	c := &cli{}
	cmd := root(c)
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errorsOnlyOf(ctx, err) {
		return exitInterrupted
	}
	c.complain(errs, err)
	return exitCode(err)
}

func root(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "leat",
		Short:         "An event-sourced message broker on PostgreSQL",
		Long:          "An event-sourced message broker on PostgreSQL.\n\n" + exitCodes,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.addFlags(cmd)
	cmd.AddCommand(
		serveCommand(), migrateCommand(c), statusCommand(c), verifyCommand(c), rebuildCommand(c),
		channelCommand(c), linkCommand(c), publishCommand(c), pollCommand(c), ackCommand(c), nackCommand(c), extendCommand(c),
		releaseCommand(c), peekCommand(c), purgeCommand(c), dlqCommand(c), circuitCommand(c), pointCommand(c), relayCommand(c), messageCommand(c), traceCommand(c), replayCommand(c), republishCommand(c), statsCommand(c), consumersCommand(c), failuresCommand(c), projectionCommand(c), logCommand(c), archiveCommand(c),
		tailCommand(c), consumeCommand(c), benchCommand(c),
	)
	checkUsage(cmd)
	return cmd
}
