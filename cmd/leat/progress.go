package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// spin shows on a terminal that work goes on which does not say how far it is.
func spin(what string) (done func()) {
	_, done = count(what)
	return done
}

// count shows on a terminal how much of work is done whose end is not known.
func count(what string, options ...progressbar.Option) (add func(int), done func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(int) {}, func() {}
	}
	bar := progressbar.NewOptions(-1, slices.Concat(barOptions(what), []progressbar.Option{progressbar.OptionSpinnerType(14)}, options)...)
	// Where the terminal fails there is nothing to show, and the work goes on.
	return func(n int) { _ = bar.Add(n) }, func() { _ = bar.Finish() }
}

const lookEvery = 200 * time.Millisecond

// follow shows on a terminal how far work is, as look says, until done is called.
func follow(ctx context.Context, what string, look func(context.Context) (done, total int64, err error)) (done func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var drawing sync.WaitGroup
	drawing.Go(func() {
		bar := progressbar.NewOptions64(1, append(barOptions(what), progressbar.OptionSetPredictTime(true))...)
		defer func() { _ = bar.Finish() }() // where the terminal fails there is nothing to show
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if now, total, err := look(ctx); err == nil && total > 0 {
				bar.ChangeMax64(max(now, total) + 1) // full only when it is done
				_ = bar.Set64(now)
			}
		}
	})
	return func() {
		stop()
		drawing.Wait()
	}
}

func barOptions(what string) []progressbar.Option {
	return []progressbar.Option{
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
	}
}
