package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"leat/api"
	"leat/api/client"
)

// What many goroutines publish goes out in few requests.
func ExamplePublisher() {
	leat, end := start()
	defer end()
	ctx := context.Background()
	_, err := leat.DeclareChannel(ctx, "orders", api.ChannelSpec{})
	check(err)

	publisher := client.NewPublisher(leat, "orders", client.PublisherConfig{})
	publish := func(order int) {
		_, err := publisher.Publish(ctx, api.Message{
			Payload: fmt.Appendf(nil, `{"order":%d}`, order),
			DedupID: fmt.Sprint("order ", order), // so that it is stored once, however often it is sent
		})
		check(err) // it is stored
	}
	var callers sync.WaitGroup
	for order := range 100 {
		callers.Go(func() { publish(order) })
	}
	callers.Wait()
	publish(7) // again
	check(publisher.Close(ctx))

	queue, err := leat.Channel(ctx, "orders")
	check(err)
	fmt.Println(queue.Counts.Ready, "orders")
	// Output: 100 orders
}

// What the handler answers is what becomes of the message.
func ExampleClient_Consume() {
	leat, end := start()
	defer end()
	ctx := context.Background()
	_, err := leat.DeclareChannel(ctx, "mails", api.ChannelSpec{Policy: api.PolicyPatch{
		Retry: api.RetryPatch{BaseDelay: new(api.Duration(0)), MaxDelay: new(api.Duration(0))},
	}})
	check(err)
	_, err = leat.Publish(ctx, "mails", api.PublishRequest{Messages: []api.Message{
		{Payload: []byte(`"to Ann"`)}, {Payload: []byte(`"to nobody"`)}, {Payload: []byte(`"to Bob"`)},
	}}, false)
	check(err)

	err = leat.Consume(ctx, "mails", client.ConsumeConfig{}, func(_ context.Context, mail api.Delivery) error {
		fmt.Printf("%s, attempt %d\n", mail.Payload, mail.Attempt)
		switch {
		case string(mail.Payload) == `"to nobody"`:
			return client.DeadLetter(errors.New("no such address"))
		case string(mail.Payload) == `"to Bob"` && mail.Attempt == 1:
			return errors.New("the server is busy") // again, by the queue's retry policy
		case mail.Attempt == 2:
			return client.ErrStop // an ack, and the end of the example
		default:
			return nil // an ack
		}
	})
	check(err)

	dead, err := leat.DeadLetters(ctx, "mails", client.DeadLettersFilter{})
	check(err)
	for _, mail := range dead.DeadLetters {
		fmt.Printf("dead: %s, %s\n", mail.Payload, mail.Detail)
	}
	// Output:
	// "to Ann", attempt 1
	// "to nobody", attempt 1
	// "to Bob", attempt 1
	// "to Bob", attempt 2
	// dead: "to nobody", no such address
}

// A subscriber with a replication point goes on where the last one of that name
// ended.
func ExampleClient_Subscribe() {
	leat, end := start()
	defer end()
	ctx := context.Background()
	_, err := leat.DeclareChannel(ctx, "prices", api.ChannelSpec{Kind: "stream"})
	check(err)
	for price := range 5 {
		_, err := leat.Publish(ctx, "prices", api.PublishRequest{Messages: []api.Message{{Payload: fmt.Append(nil, 10*price)}}}, false)
		check(err)
	}

	config := client.SubscribeConfig{Point: "board", From: "earliest"}
	for _, last := range []string{"20", "40"} {
		err := leat.Subscribe(ctx, "prices", config, func(_ context.Context, price client.Message) error {
			fmt.Printf("offset %d: %s\n", price.Offset, price.Payload)
			if string(price.Payload) == last {
				return client.ErrStop // what was handled is committed
			}
			return nil
		})
		check(err)
		fmt.Println("stopped")
	}
	// Output:
	// offset 0: 0
	// offset 1: 10
	// offset 2: 20
	// stopped
	// offset 3: 30
	// offset 4: 40
	// stopped
}

// The members of a group share a stream by routing key.
func ExampleClient_Subscribe_group() {
	leat, end := start()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	_, err := leat.DeclareChannel(ctx, "clicks", api.ChannelSpec{Kind: "stream"})
	check(err)

	var mu sync.Mutex
	users := map[string]int{}
	var members sync.WaitGroup
	for range 3 {
		members.Go(func() {
			config := client.SubscribeConfig{Point: "counters", Partitions: 6, From: "earliest"}
			check(leat.Subscribe(ctx, "clicks", config, func(_ context.Context, click client.Message) error {
				mu.Lock()
				defer mu.Unlock()
				users[click.RoutingKey] = max(users[click.RoutingKey], int(click.Payload[0]-'0'))
				if users["Ann"] == 3 && users["Bob"] == 3 && users["Eve"] == 3 {
					stop()
				}
				return nil
			}))
		})
	}
	for click := 1; click <= 3; click++ {
		for _, user := range []string{"Ann", "Bob", "Eve"} {
			_, err := leat.Publish(context.Background(), "clicks", api.PublishRequest{Messages: []api.Message{
				{RoutingKey: user, Payload: fmt.Append(nil, click)},
			}}, false)
			check(err)
		}
	}
	members.Wait()
	fmt.Println(users)
	// Output: map[Ann:3 Bob:3 Eve:3]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
