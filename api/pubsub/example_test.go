package pubsub_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"leat/api/pubsub"
)

// A router reads one topic and publishes to another. Here topics are streams,
// which two groups read, each at its own place.
func Example() {
	leat, end := start() // client.New("http://127.0.0.1:8080", client.Options{})
	defer end()
	logger := watermill.NopLogger{} // watermill.NewSlogLogger(slog.Default())
	topics := pubsub.Topics{Kind: pubsub.Streams}
	publisher, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Topics: topics}, logger)
	check(err)
	billing, err := pubsub.NewSubscriber(leat, pubsub.SubscriberConfig{Topics: topics, Group: "billing"}, logger)
	check(err)
	mail, err := pubsub.NewSubscriber(leat, pubsub.SubscriberConfig{Topics: topics, Group: "mail"}, logger)
	check(err)

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, logger)
	check(err)
	router.AddHandler("bill", "orders", billing, "bills", publisher, func(order *message.Message) ([]*message.Message, error) {
		bill := message.NewMessage(watermill.NewUUID(), []byte("bill for "+string(order.Payload)))
		return message.Messages{bill}, nil
	})
	sent := make(chan string)
	router.AddConsumerHandler("mail", "bills", mail, func(bill *message.Message) error {
		sent <- string(bill.Payload)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- router.Run(ctx) }()

	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("Ann"))))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("Bob"))))
	fmt.Println(<-sent)
	fmt.Println(<-sent)
	stop()
	check(<-stopped)
	check(publisher.Close())
	// Output:
	// bill for Ann
	// bill for Bob
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
