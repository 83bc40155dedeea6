package async

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"leat/eventstore"
)

const (
	stopSQL = `-- async.stop
select leat.stop_projection($1, $2, $3)`
	resumeSQL = `-- async.resume
select leat.resume_projection($1, $2, $3)`
	rebuildSQL = `-- async.rebuild
select leat.rebuild_projection($1, $2, $3, $4)`
)

// Stop stops a projection at every broker: when it returns, no batch is under way.
// False: it was stopped before.
func (s *Service) Stop(ctx context.Context, name, actor string) (bool, error) {
	return s.change(ctx, "stop", name, stopSQL, name, true, actor)
}

// Start lets a projection go on that was stopped. False: it was not.
func (s *Service) Start(ctx context.Context, name, actor string) (bool, error) {
	return s.change(ctx, "start", name, stopSQL, name, false, actor)
}

// Retry lets a projection that failed try its event again. False: it has not failed.
func (s *Service) Retry(ctx context.Context, name, actor string) (bool, error) {
	return s.change(ctx, "retry", name, resumeSQL, name, false, actor)
}

// Skip lets a projection that failed go on behind its event, which is not counted.
// False: it has not failed.
func (s *Service) Skip(ctx context.Context, name, actor string) (bool, error) {
	return s.change(ctx, "skip", name, resumeSQL, name, true, actor)
}

// Rebuild builds a projection from the beginning of the log, beside the one that
// queries read, and lets it take its place when it has caught up. False: that is
// under way already. Where the log has lost its beginning, by its retention, that is
// refused as events_gone: the new one would have nothing of before. force lets it go.
func (s *Service) Rebuild(ctx context.Context, name, actor string, force bool) (bool, error) {
	p := s.find(name)
	if p == nil {
		return false, eventstore.NewError(eventstore.ProjectionNotFound, "There is no projection %s.", name)
	}
	return s.change(ctx, "rebuild", name, rebuildSQL, name, p.Version(), actor, force)
}

func (s *Service) change(ctx context.Context, what, name, sql string, args ...any) (changed bool, err error) {
	if strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name) {
		return false, eventstore.NewError(eventstore.ProjectionNotFound, "There is no projection %q.", name)
	}
	if err := s.cfg.Pool.QueryRow(ctx, sql, args...).Scan(&changed); err != nil {
		return false, fmt.Errorf("%s projection %s: %w", what, name, eventstore.FromPg(err))
	}
	signal(s.poke)
	s.Wake()
	return changed, nil
}
