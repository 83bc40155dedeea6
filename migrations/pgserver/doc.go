// Package pgserver runs a private PostgreSQL server in a data folder, as the
// embedded default of `leat serve` and for the tests.
//
// # Guarantees
//
//   - One owner: a second Start on a folder is refused with a *LockedError that
//     names the first (TestSecondOwnerRefused).
//   - Nothing stays behind: if this process is killed, the kernel asks the
//     server to shut down (TestParentKilled, on Linux).
//   - A folder of another major version is never touched (TestOtherMajor).
//   - An interrupted initdb leaves no half folder: it works in a temporary
//     folder that is renamed at the end.
//   - Only this user, and whoever can read the password file, gets in: the
//     socket lies in a folder of mode 0700 and asks for no password; the
//     loopback port asks for one (TestAccess).
//
// # How it works
//
//	DataDir/lock        flock of the owner; holds its pid and its socket folder
//	DataDir/password    of role leat, for the loopback port, mode 0600
//	DataDir/pgdata      what initdb made
//	  postgresql.conf   made once, includes leat.conf: edit it to tune the server
//	  leat.conf         our defaults, written at every start
//
// The server is a direct child in a session of its own, so that Ctrl-C in a
// terminal reaches the broker first. What has to be as it is (port, socket
// folder, wal_level) goes on its command line and wins over the files. Its log
// lines go to the logger. PostgreSQL refuses to run as root: then the child
// runs as the owner of the folder, else as user postgres, else as nobody. Where
// a parent of the folder is closed to that user (/root), the child gets the
// folder as an open handle (TestClosedParent).
//
// # Failure handling
//
// Run restarts a server that ended by itself, with back-off, for as long as the
// broker lives. Whatever makes a restart fail may pass (a full disk, backends
// of the dead server that still hold its memory), so it never gives up. A
// server that outlived its killed owner is stopped before a new one starts, and
// the start waits up to half a minute for what is left of a killed one
// (TestKilledServerIsStillListed).
//
// # What it does not do
//
// It neither downloads, upgrades nor backs up anything.
//
// Reading order: server.go, supervise.go, cluster.go, binaries.go, process.go.
package pgserver
