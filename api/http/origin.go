package httpapi

import (
	"net/http"
	"strings"
)

// readable says whether pages of allowed origins may read what a route answers.
func (r route) readable() bool {
	return r.method == http.MethodGet && strings.HasPrefix(r.path, "/v1/streams/")
}

// allowOrigin tells the browser that the page may read the answer, if it may.
// Nothing here comes with cookies, and none of it needs a preflight.
func (s *server) allowOrigin(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !s.Origins.Match(origin) {
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", headerEpoch+", "+headerNext+", X-Request-Id, Retry-After")
}
