package queries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/queries"
)

// A cursor is one that was given out, or is refused.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{
		"", "MS4x", "MS4w", "MS4tMQ", "MS4x==", "MS4xIA", "MS4rMQ", "MS4wMQ", "MS45MjIzMzcyMDM2ODU0Nzc1ODA3", "MS45MjIzMzcyMDM2ODU0Nzc1ODA4",
		"MQ", "Mi4x", "17", "\x00", "\xff", "MS4x\n", "MS5",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		canonical, err := queries.Cursor(text)
		if err != nil {
			require.Equal(t, eventstore.InvalidField, code(err))
			return
		}
		require.Equal(t, text, canonical)
	})
}
