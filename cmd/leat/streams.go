package main

import (
	"context"

	"leat/api"
	"leat/eventstore"
	"leat/replication"
)

// streamsAPI is the hub as the API asks for it.
type streamsAPI struct {
	hub *replication.Hub
}

// Subscribe begins a subscription.
func (s streamsAPI) Subscribe(ctx context.Context, request eventstore.SubscribeRequest) (api.Subscription, error) {
	subscription, err := s.hub.Subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return subscription, nil
}
