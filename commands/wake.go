package commands

import "leat/eventstore"

// Wake says that messages may have become deliverable in these queues, through
// this broker or another; none means in any queue. It never blocks.
func (b *Broker) Wake(channels ...eventstore.ChannelID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(channels) == 0 {
		for _, d := range b.dispatchers {
			d.wake()
		}
		return
	}
	for _, id := range channels {
		if d := b.dispatchers[id]; d != nil {
			d.wake()
		}
	}
}

// ready tells pollers, here and elsewhere, after a commit of this broker.
func (b *Broker) ready(channels ...eventstore.ChannelID) { b.tell(channels, false) }

// tell is ready; logged says that the commit itself told those who read the
// write-ahead log.
func (b *Broker) tell(channels []eventstore.ChannelID, logged bool) {
	if len(channels) == 0 {
		return
	}
	b.Wake(channels...)
	b.cfg.Announce(channels, logged)
}
