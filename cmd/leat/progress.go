package main

import (
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// spin shows on a terminal that work goes on; the fold is one statement, which
// does not say how far it is.
func spin(what string) (done func()) {
	_, done = count(what)
	return done
}

// count shows on a terminal how much of work is done whose end is not known.
func count(what string, options ...progressbar.Option) (add func(int), done func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(int) {}, func() {}
	}
	bar := progressbar.NewOptions(-1, append([]progressbar.Option{
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish(),
	}, options...)...)
	// Where the terminal fails there is nothing to show, and the work goes on.
	return func(n int) { _ = bar.Add(n) }, func() { _ = bar.Finish() }
}
