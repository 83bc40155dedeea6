package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			ids := b.publish("q", commands.Message{RoutingKey: "k", Payload: []byte("a"), Headers: []byte(`{"A":1}`)},
				commands.Message{RoutingKey: "k", Payload: []byte("b"), ContentType: "text/plain", Delay: time.Second})
			got := b.poll(commands.PollRequest{Queue: "q", Consumer: "c", Wait: time.Second})
			require.Len(t, got, 1)
			require.Equal(t, ids[0], got[0].MessageID)
			t.Log(got)
			require.Equal(t, 1, b.ack("q", got...).Settled)
			got = b.poll(commands.PollRequest{Queue: "q", Consumer: "c", Wait: 3 * time.Second})
			require.Len(t, got, 1)
			res, until, err := b.Extend(ctx, commands.ExtendRequest{SettleRequest: settle("q", got...)})
			require.NoError(t, err)
			t.Log(res, until)
			res, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Reason: "no"})
			require.NoError(t, err)
			t.Log(res)
			got = b.poll(commands.PollRequest{Queue: "q", Consumer: "c", Wait: 3 * time.Second})
			require.Len(t, got, 1)
			require.Equal(t, 2, got[0].Attempt)
			res, err = b.Release(ctx, settle("q", got...))
			require.NoError(t, err)
			t.Log(res)
			n, err := b.Purge(ctx, "q", "me")
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			_, err = b.AlterChannel(ctx, "me", "q", commands.PolicyPatch{Lease: ptr(time.Hour)})
			require.NoError(t, err)
			require.NoError(t, b.DeleteChannel(ctx, "me", "q", false))
			b.verify()
		})
	}
}
