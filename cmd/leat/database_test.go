package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections that were opened together must not all be replaced together.
func TestConnectionsEndOneByOne(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://host/db":                            time.Hour,
		"postgres://host/db?pool_max_conn_lifetime=10m": 10 * time.Minute,
		"postgres://host/db?pool_max_conn_lifetime=10m&pool_max_conn_lifetime_jitter=1m": time.Minute,
	} {
		config, err := poolConfig(url)
		require.NoError(t, err)
		require.Equal(t, want, config.MaxConnLifetimeJitter, url)
	}
}
