package pgserver

import (
	"context"
	"log/slog"
)

// StartOrphan runs a server on a folder without owning it, as one that has
// outlived its owner.
func StartOrphan(ctx context.Context, dir string) (pid int, exited <-chan struct{}, err error) {
	c, err := locate(dir)
	if err != nil {
		return 0, nil, err
	}
	bin, err := findBinaries(ctx, "", c.pgdata, c.major)
	if err != nil {
		return 0, nil, err
	}
	c.socketDir = c.pgdata
	s := &Server{log: slog.New(slog.DiscardHandler), bin: bin, cluster: c, closing: make(chan struct{})}
	if s.port, err = freePort(ctx); err != nil {
		return 0, nil, err
	}
	if err := s.startChild(ctx); err != nil {
		return 0, nil, err
	}
	return s.PID(), s.child.exited, nil
}
