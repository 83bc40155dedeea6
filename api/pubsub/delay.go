package pubsub

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"leat/api"
)

// setDelay reads the delay of Watermill's delay component, which gives a length
// and a moment. The moment has no fractions of a second, so the length counts,
// unless the message is older than it says and would wait again.
func setDelay(out *api.Message, metadata message.Metadata) error {
	length, until, err := delayOf(metadata)
	if err != nil {
		return err
	}
	now := time.Now()
	switch {
	case until.IsZero() && length > 0:
		out.Delay = api.Duration(length)
	case until.IsZero():
	case length > 0 && now.Add(length).Before(until.Add(time.Second)):
		out.Delay = api.Duration(length)
	case until.After(now):
		out.DeliverAt = &until
	}
	return nil
}

func delayOf(metadata message.Metadata) (length time.Duration, until time.Time, err error) {
	if text := metadata.Get(delay.DelayedForKey); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			return 0, time.Time{}, fmt.Errorf("metadata: %s: %w", delay.DelayedForKey, err)
		}
	}
	if text := metadata.Get(delay.DelayedUntilKey); text != "" {
		if until, err = time.Parse(time.RFC3339, text); err != nil {
			return 0, time.Time{}, fmt.Errorf("metadata: %s: %w", delay.DelayedUntilKey, err)
		}
	}
	return length, until, nil
}
