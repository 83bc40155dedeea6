// Command leat is the broker and its command line.
//
// # How it works
//
// It is the one place where the folders meet. serve.go wires the parts of the
// broker and is the list of what happens at the start and at the end. Every
// other command has the file of its noun; those that talk to a broker do it
// through api/client, and only verify, rebuild and migrate may work on a
// database instead.
//
//	main.go ─▶ cobra ─▶ cli.remote ─▶ api/client ─▶ HTTP ─▶ the broker of serve.go
//	                 └▶ onViews, migrate ─▶ projections, migrations ─▶ the database
//
// # Guarantees
//
//   - A hundred kills of consumer, broker and PostgreSQL leave no offset of a
//     stream out, and none that was committed comes again (TestG7AHundredKills).
//   - Nothing is tried before the command line is understood (TestWrongUsage).
//   - Exit codes are for scripts (exit.go); -o json writes the wire types of
//     package api, and its problems on stderr.
//   - What others wrote cannot disturb a terminal: names and texts that do not
//     print are quoted (TestCommands).
//   - After SIGTERM nothing is left running (TestOneBrokerPerFolder); after
//     SIGKILL of everything the next start goes on (TestG2KillEverything).
//
// # What it does not do
//
// It repeats no call: what is safe to repeat is the caller's to know.
//
// # Reading order
//
// main.go, cli.go, exit.go, usage.go, output.go, then serve.go or any noun.
// follow_test.go uses most of it, top to bottom.
package main
