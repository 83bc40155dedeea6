package commands_test

import (
	"testing"

	"leat/commands"
	"leat/migrations/dbtest"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, commands.Statements()...)
}
