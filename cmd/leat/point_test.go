package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

func (p *process) point(t *testing.T) {
	p.leat("channel", "declare", "flow", "--kind", "stream")
	p.exits(exitOK, "{\"payload\":0}\n{\"payload\":1}\n{\"payload\":2}\n", "publish", "flow", "--ndjson")
	require.Regexp(t, `next +3\n`, p.leat("point", "create", "flow", "end"))
	made := value[api.Point](p, "point", "create", "flow", "billing", "--from", "earliest")
	require.EqualValues(t, 3, made.Lag)
	require.Equal(t, made.CreatedAt, value[api.Point](p, "point", "create", "flow", "billing").CreatedAt, "it exists")
	require.Len(t, value[api.Point](p, "point", "create", "flow", "group", "--partitions", "4").Partitions, 4)
	require.Regexp(t, `billing +0 +3 +\d.*s +1 +0\n(.*\n)*group +3 +0 +0s +4 +0\n`, p.leat("point", "list", "flow"))

	require.Regexp(t, `lag +1\n`, p.leat("point", "commit", "flow", "billing", "1", "--epoch", made.Epoch.String()))
	require.Contains(t, p.exits(exitFailed, "", "point", "commit", "flow", "billing", "0").errs, "commit_behind")
	require.Contains(t, p.exits(exitFailed, "", "point", "commit", "flow", "billing", "7").errs, "offset_ahead")
	require.Contains(t, p.exits(exitFailed, "", "point", "commit", "flow", "billing", "1", "--epoch", "1").errs, "epoch_changed")
	require.Contains(t, p.exits(exitUsage, "", "point", "commit", "flow", "billing", "last").errs, `"last" is not an offset`)
	require.EqualValues(t, 1, value[api.Point](p, "point", "reset", "flow", "billing", "--from", "1").Next)
	require.EqualValues(t, 0, value[api.Point](p, "point", "reset", "flow", "billing", "--from", "2020-01-01T00:00:00Z").Next)
	require.Contains(t, p.exits(exitUsage, "", "point", "reset", "flow", "billing").errs, "say where to")
	require.Contains(t, p.exits(exitFailed, "", "point", "reset", "flow", "billing", "--from", "somewhere").errs, "from must be")
	require.Regexp(t, `partition +3 +3`, p.leat("point", "show", "flow", "group"))

	require.Contains(t, p.leat("point", "delete", "flow", "billing"), "deleted")
	require.Contains(t, p.exits(exitNothing, "", "point", "show", "flow", "billing").errs, "point_not_found")
	require.Contains(t, p.exits(exitNothing, "", "point", "list", "none").errs, "channel_not_found")
	require.Contains(t, p.leat("replay", "--kind", string(eventstore.PointReset), "-o", "table"), "point.reset flow")
	p.leat("channel", "delete", "flow", "--force")
}
