package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

func TestPoints(t *testing.T) {
	t.Parallel()
	c := setup(t)
	ctx := t.Context()
	stream, err := c.DeclareChannel(ctx, "s", api.ChannelSpec{Kind: "stream"})
	require.NoError(t, err)
	_, err = c.Publish(ctx, "s", api.PublishRequest{Messages: slices.Repeat([]api.Message{{Payload: []byte("1")}}, 3)}, false)
	require.NoError(t, err)

	point, err := c.DeclarePoint(ctx, "s", "p", api.PointSpec{From: "earliest", Epoch: stream.Epoch})
	require.NoError(t, err)
	require.EqualValues(t, 3, point.Lag)
	last := eventstore.Offset(1)
	point, err = c.CommitPoint(ctx, "s", "p", api.PointCommit{Epoch: stream.Epoch, Offset: &last})
	require.NoError(t, err)
	require.EqualValues(t, 2, point.Next)
	point, err = c.ResetPoint(ctx, "s", "p", api.PointStart{From: "2"})
	require.NoError(t, err)
	require.EqualValues(t, 2, point.Next)
	page, err := c.Points(ctx, "s")
	require.NoError(t, err)
	require.Len(t, page.Points, 1)

	last = 0
	_, err = c.CommitPoint(ctx, "s", "p", api.PointCommit{Offset: &last})
	p, ok := errors.AsType[*api.Problem](err)
	require.True(t, ok, "%v", err)
	require.NoError(t, c.DeletePoint(ctx, "s", "p"))
	require.Equal(t, eventstore.CommitBehind, p.Code)
	require.Equal(t, &api.StreamPosition{Epoch: stream.Epoch, Offset: 2}, p.Resume)
	_, err = c.Point(ctx, "s", "p")
	require.ErrorContains(t, err, "point_not_found")
}
