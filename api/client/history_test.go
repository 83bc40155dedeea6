package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A history comes whole, from as many pages as the server makes of it.
func TestHistoryOfManyPages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"":  `{"messageId":1,"events":[{"position":1},{"position":2}],"nextCursor":"a"}`,
		"a": `{"messageId":1,"events":[{"position":3}],"nextCursor":"b"}`,
		"b": `{"messageId":1,"events":[{"position":4}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, pages[r.URL.Query().Get("cursor")])
	}))
	t.Cleanup(server.Close)
	events, err := connect(t, server.URL).History(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, events, 4)
	for i, e := range events {
		require.EqualValues(t, i+1, e.Position)
	}
}

func TestLineage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"messageId":7,"originMessageId":1,"messages":[{"messageId":1,"nextCopies":%q}],"truncated":true}`, r.URL.RequestURI())
	}))
	t.Cleanup(server.Close)
	family, err := connect(t, server.URL).Lineage(t.Context(), 7, "abc", 5)
	require.NoError(t, err)
	require.True(t, family.Truncated)
	require.Equal(t, "/v1/messages/7/lineage?cursor=abc&limit=5", family.Messages[0].NextCopies)
}
