package commands

// newRounds makes the coalescer of what consumers do all the time: acks and short
// claims. All of a round share a transaction and a round trip, which cost as much
// as what is in it. Acks come first: they may wait for locks, and so hold no
// claimed messages meanwhile; claims wait for nobody.
func (b *Broker) newRounds() *coalescer[job] {
	return &coalescer[job]{
		flights:   roundFlights,
		worth:     batchWorth,
		maxItems:  batchItems,
		maxWeight: batchBytes,
		run:       b.round,
		separable: separable,
	}
}

func (b *Broker) round(jobs []job) error {
	var (
		acks   []*ackJob
		claims []*claimJob
	)
	for _, j := range jobs {
		switch j := j.(type) {
		case *ackJob:
			acks = append(acks, j)
		case *claimJob:
			claims = append(claims, j)
		}
	}
	var statements []statement
	if len(acks) > 0 {
		statements = append(statements, ackAll(acks, false))
	}
	for _, c := range claims {
		statements = append(statements, c.claim(len(acks) > 0))
	}
	ctx, cancel := batchContext()
	defer cancel()
	return run(ctx, b.cfg.Pool, statements...)
}
