package eventstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
)

// The kinds of the code are those of the database.
func TestKinds(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var stored []string
	require.NoError(t, pool.QueryRow(t.Context(), "select enum_range(null::leat.event_kind)::text[]").Scan(&stored))
	kinds := make([]string, len(eventstore.Kinds()))
	for i, kind := range eventstore.Kinds() {
		kinds[i] = string(kind)
		parsed, err := eventstore.ParseKind(kinds[i])
		require.NoError(t, err)
		require.Equal(t, kind, parsed)
	}
	require.ElementsMatch(t, stored, kinds)
	_, err := eventstore.ParseKind("message.eaten")
	require.Error(t, err)
}
