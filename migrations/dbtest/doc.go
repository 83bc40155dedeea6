// Package dbtest gives tests a real PostgreSQL: a migrated database of their
// own, cloned from a template, and whole servers that they may crash.
//
//	func TestMain(m *testing.M) {
//		os.Exit(dbtest.Main(m, eventstore.SQL, commands.SQL))
//	}
//
//	func TestPublish(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.New(t)
//		…
//	}
//
// The server of a test binary is started by the first New and stopped by Main.
// It does not sync to disk, which a crash of the machine would not survive, but
// a crash of the server does. Its data is in /dev/shm where there is room, and stays
// there when the tests are killed: folders leat-test-* may go then. With
// LEAT_TEST_DATABASE_URL set, the server of that URL is used instead; its role must be a
// superuser.
//
// Main also fails the binary when goroutines are left over.
package dbtest
