package eventstore

// NoQueue says of a channel that it is none to consume, and what to do instead.
func NoQueue(name, kind string) *Error {
	switch kind {
	case "stream":
		return NewError(ChannelNotFound,
			"There is no queue %q: it is a stream. Subscribe to it (/v1/streams/%s/subscribe, leat tail) instead.", name, name)
	case "exchange":
		return NewError(ChannelNotFound, "There is no queue %q: it is an exchange, which stores nothing.", name)
	default:
		return NewError(ChannelNotFound, "There is no queue %q: it is a channel of kind %s.", name, kind)
	}
}
