package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

// stream makes a stream with n messages.
func (s site) stream(name string, n int) {
	s.t.Helper()
	s.declare(name, `{"kind":"stream"}`)
	for range n {
		s.publish(name, `{"payload":1}`)
	}
}

func TestPoints(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.stream("s", 10)
	const at = "/v1/streams/s/points"
	point := func(status int, method, path, body string) api.Point {
		t.Helper()
		return read[api.Point](s.must(status, method, at+path, body))
	}
	made := point(http.StatusCreated, http.MethodPut, "/p", `{"from":"earliest"}`)
	require.Equal(t, "s", made.Stream)
	require.Equal(t, "p", made.Point)
	require.Positive(t, made.Epoch)
	require.EqualValues(t, 0, made.Next)
	require.EqualValues(t, 10, made.End)
	require.EqualValues(t, 10, made.Lag)
	require.Greater(t, time.Duration(made.Age), time.Duration(0))
	require.Empty(t, made.Members)
	require.Nil(t, made.Partitions)
	require.EqualValues(t, 0, point(http.StatusOK, http.MethodPut, "/p", `{"from":"latest"}`).Next, "it stays where it is")
	require.Equal(t, made.Epoch, point(http.StatusOK, http.MethodPut, "/p", "").Epoch)

	require.EqualValues(t, 5, point(http.StatusOK, http.MethodPost, "/p/commit", `{"epoch":`+made.Epoch.String()+`,"offset":4}`).Next)
	require.EqualValues(t, 5, point(http.StatusOK, http.MethodGet, "/p", "").Lag)
	last := point(http.StatusOK, http.MethodPost, "/p/commit", `{"offset":9}`)
	require.EqualValues(t, 0, last.Lag)
	require.Zero(t, last.Age)
	require.EqualValues(t, 2, point(http.StatusOK, http.MethodPost, "/p/reset", `{"from":"2"}`).Next)

	group := point(http.StatusCreated, http.MethodPut, "/group", `{"partitions":3}`)
	require.Len(t, group.Partitions, 3)
	require.EqualValues(t, 10, group.Partitions[2].Next)
	page := read[api.PointPage](s.must(http.StatusOK, http.MethodGet, at, ""))
	require.Len(t, page.Points, 2)
	require.Equal(t, "group", page.Points[0].Point)

	s.must(http.StatusNoContent, http.MethodDelete, at+"/p", "")
	require.Equal(t, eventstore.PointNotFound, s.must(http.StatusNotFound, http.MethodGet, at+"/p", "").problem().Code)
}

// G8: what is wrong says so, changes nothing, and tells where one can go on.
func TestG8PointsRefuse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	s.stream("s", 10)
	const at = "/v1/streams/s/points"
	made := read[api.Point](s.must(http.StatusCreated, http.MethodPut, at+"/p", `{"from":"5"}`))
	events := s.events()
	for _, c := range []struct {
		method, path, body string
		code               eventstore.Code
		field              string
		resume             eventstore.Offset // -1: none
	}{
		{http.MethodGet, "/v1/streams/none/points", "", eventstore.ChannelNotFound, "", -1},
		{http.MethodGet, "/v1/streams/q/points", "", eventstore.ChannelNotFound, "", -1},
		{http.MethodGet, "/v1/streams/%00/points/p", "", eventstore.ChannelNotFound, "", -1},
		{http.MethodGet, at + "/%00", "", eventstore.PointNotFound, "", -1},
		{http.MethodPut, "/v1/streams/q/points/p", "", eventstore.ChannelNotFound, "", -1},
		{http.MethodPut, at + "/a%20b", "", eventstore.InvalidField, "point", -1},
		{http.MethodPut, at + "/x", `{"from":"yesterday"}`, eventstore.InvalidField, "from", -1},
		{http.MethodPut, at + "/x", `{"from":-1}`, eventstore.InvalidField, "from", -1},
		{http.MethodPut, at + "/x", `{"partitions":65}`, eventstore.InvalidField, "partitions", -1},
		{http.MethodPut, at + "/x", `{"offset":5}`, eventstore.UnknownField, "offset", -1},
		{http.MethodPut, at + "/x", `{"from":"11"}`, eventstore.OffsetAhead, "", 10},
		{http.MethodPut, at + "/x", `{"from":"5","epoch":1}`, eventstore.EpochChanged, "", 0},
		{http.MethodPut, at + "/p", `{"partitions":2}`, eventstore.PointConflict, "partitions", -1},
		{http.MethodPost, at + "/p/commit", ``, eventstore.InvalidRequest, "", -1},
		{http.MethodPost, at + "/p/commit", `{}`, eventstore.InvalidField, "offset", -1},
		{http.MethodPost, at + "/p/commit", `{"offset":null}`, eventstore.InvalidField, "offset", -1},
		{http.MethodPost, at + "/p/commit", `{"offset":-1}`, eventstore.InvalidField, "offset", -1},
		{http.MethodPost, at + "/p/commit", `{"offset":"5"}`, eventstore.InvalidField, "offset", -1},
		{http.MethodPost, at + "/p/commit", `{"offset":10}`, eventstore.OffsetAhead, "", 10},
		{http.MethodPost, at + "/p/commit", `{"offset":3}`, eventstore.CommitBehind, "", 5},
		{http.MethodPost, at + "/p/commit", `{"offset":6,"epoch":1}`, eventstore.EpochChanged, "", 5},
		{http.MethodPost, at + "/x/commit", `{"offset":6}`, eventstore.PointNotFound, "", -1},
		{http.MethodPost, at + "/p/reset", ``, eventstore.InvalidRequest, "", -1},
		{http.MethodPost, at + "/p/reset", `{}`, eventstore.InvalidField, "from", -1},
		{http.MethodPost, at + "/p/reset", `{"from":"99"}`, eventstore.OffsetAhead, "", 10},
		{http.MethodPost, at + "/x/reset", `{"from":"1"}`, eventstore.PointNotFound, "", -1},
		{http.MethodDelete, at + "/x", ``, eventstore.PointNotFound, "", -1},
	} {
		p := s.call(c.method, c.path, c.body).problem()
		require.Equal(t, c.code, p.Code, "%s %s %s: %s", c.method, c.path, c.body, p.Detail)
		if c.field != "" {
			require.Len(t, p.Errors, 1)
			require.Equal(t, c.field, p.Errors[0].Field)
		}
		if c.resume >= 0 {
			require.Equal(t, &api.StreamPosition{Epoch: made.Epoch, Offset: c.resume}, p.Resume, "%s %s", c.path, c.body)
		}
	}
	require.Equal(t, events, s.events(), "what was refused left no event")
}
