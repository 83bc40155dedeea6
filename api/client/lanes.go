package client

import "sync"

// lanes hand items to workers: those of one key in their order, one after the
// other.
type lanes[T any] struct {
	mu     sync.Mutex
	more   sync.Cond // on mu: there is an item, or the end
	ready  []lane[T]
	behind map[string][]T // a key is there while one of its items is ready or with a worker
	closed bool
}

type lane[T any] struct {
	item  T
	key   string
	keyed bool
}

func newLanes[T any]() *lanes[T] {
	l := &lanes[T]{behind: map[string][]T{}}
	l.more.L = &l.mu
	return l
}

// push adds an item; without a key of its own nothing waits for it.
func (l *lanes[T]) push(key string, keyed bool, item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keyed {
		if behind, busy := l.behind[key]; busy {
			l.behind[key] = append(behind, item)
			return
		}
		l.behind[key] = nil
	}
	l.ready = append(l.ready, lane[T]{item, key, keyed})
	l.more.Signal()
}

// next waits for an item; false is the end.
func (l *lanes[T]) next() (item T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) == 0 && !l.closed {
		l.more.Wait()
	}
	if l.closed {
		return item, false
	}
	first := l.ready[0]
	l.ready[0] = lane[T]{}
	l.ready = l.ready[1:]
	return first.item, true
}

// finish makes the next item of the key ready.
func (l *lanes[T]) finish(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow(key)
}

// follow lets the next of a key come forward. The mu is held.
func (l *lanes[T]) follow(key string) {
	behind := l.behind[key]
	if len(behind) == 0 {
		delete(l.behind, key)
		return
	}
	l.behind[key] = behind[1:]
	l.ready = append(l.ready, lane[T]{behind[0], key, true})
	l.more.Signal()
}

// drop takes out the items that wait and match.
func (l *lanes[T]) drop(match func(T) bool) (dropped []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, behind := range l.behind {
		kept := behind[:0]
		for _, item := range behind {
			if match(item) {
				dropped = append(dropped, item)
			} else {
				kept = append(kept, item)
			}
		}
		clear(behind[len(kept):])
		l.behind[key] = kept
	}
	ready := l.ready
	l.ready = nil
	for _, first := range ready {
		if !match(first.item) {
			l.ready = append(l.ready, first)
			continue
		}
		dropped = append(dropped, first.item)
		if first.keyed {
			l.follow(first.key)
		}
	}
	return dropped
}

// close ends next for all workers.
func (l *lanes[T]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.more.Broadcast()
}
