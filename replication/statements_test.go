package replication_test

import (
	"testing"

	"leat/migrations/dbtest"
	"leat/replication"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, replication.Statements()...)
}
