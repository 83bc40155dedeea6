package eventstore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

func TestIsLabel(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "billing", "Björn’s café #1", strings.Repeat("x", 255)} {
		require.True(t, eventstore.IsLabel(s), "%q", s)
	}
	for _, s := range []string{"a\x00", "a\nb", "\t", "\x1b[2J", "a\u0085", "\x7f", "\xff", strings.Repeat("ü", 128)} {
		require.False(t, eventstore.IsLabel(s), "%q", s)
	}
}
