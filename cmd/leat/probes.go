package main

import (
	"context"
	"net/http"
	"time"

	"leat/projections"
)

// probeWithin bounds how long a readiness probe waits for the database.
const probeWithin = 2 * time.Second

// probes serves /livez and /healthz (the process answers) and /readyz (the
// database does too, and the queue views are whole).
func probes(views *projections.Views) http.Handler {
	mux := http.NewServeMux()
	live := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeWithin)
		defer cancel()
		switch alive, err := views.Alive(ctx); {
		case err != nil:
			refuse(w, "database unavailable")
		case !alive:
			refuse(w, "queue views are being rebuilt")
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
	return mux
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}
