package replication_test

import (
	"os"
	"testing"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/replication"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}
