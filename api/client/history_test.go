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
