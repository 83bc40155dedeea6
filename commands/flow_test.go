package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

func TestFlowGrain(t *testing.T) {
	t.Parallel()
	var f commands.Flow
	now := time.Now()
	require.Equal(t, 1, f.Grain(now, 4), "nothing came yet")
	f.Add(now, 40)
	require.Equal(t, 10, f.Grain(now, 4), "what each had on average")
	require.Equal(t, 1, f.Grain(now, 100))
	f.Add(now, 1000)
	require.Equal(t, 16, f.Grain(now, 4), "bounded")
	require.Equal(t, 1, f.Grain(now.Add(time.Second), 4), "forgotten")
}
