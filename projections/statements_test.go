package projections_test

import (
	"testing"

	"leat/migrations/dbtest"
	"leat/projections"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, projections.Statements()...)
}
