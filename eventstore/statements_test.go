package eventstore_test

import (
	"testing"

	"leat/eventstore"
	"leat/migrations/dbtest"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, eventstore.Statements()...)
}
