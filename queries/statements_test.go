package queries_test

import (
	"testing"

	"leat/migrations/dbtest"
	"leat/queries"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, queries.Statements()...)
}
