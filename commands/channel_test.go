package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// A service that declares its queues at each start goes on doing so after an
// operator altered one.
func TestDeclareAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	again := func(spec commands.ChannelSpec) (commands.Channel, error) {
		spec.Name = "q"
		channel, created, err := b.DeclareChannel(ctx, "", spec)
		require.False(t, created)
		return channel, err
	}
	minute := time.Minute
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, err := b.AlterChannel(ctx, "", "q", commands.PolicyPatch{Lease: &minute})
	require.NoError(t, err)

	channel, err := again(commands.ChannelSpec{})
	require.NoError(t, err)
	require.Equal(t, minute, channel.Policy.Lease)
	_, err = again(commands.ChannelSpec{Policy: commands.PolicyPatch{Lease: &minute}})
	require.NoError(t, err)

	hour := time.Hour
	_, err = again(commands.ChannelSpec{Policy: commands.PolicyPatch{Lease: &hour}})
	require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)
	require.Equal(t, "lease", refusal(t, err).Field)
	_, err = again(commands.ChannelSpec{Mode: commands.FIFO})
	require.Equal(t, "mode", refusal(t, err).Field)
}
