package client

// Waiting is how many messages wait for a request.
func Waiting(p *Publisher) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// DecodeMessages is decodeMessages.
var DecodeMessages = decodeMessages

// ReadsByHand reports whether DecodeMessages reads a frame without encoding/json.
func ReadsByHand(data []byte) bool {
	s := scanner{rest: data}
	_, ok := s.frame()
	return ok
}

// PartitionOf is partitionOf.
var PartitionOf = partitionOf
