package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/api/pubsub"
	"leat/eventstore"
)

// What goes in comes out.
func TestExactBytes(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	for _, topics := range []pubsub.Topics{{}, {Kind: pubsub.Streams}} {
		topic := "exact-" + topics.Kind.String()
		pub, messages := publisher(t, leat, topics), subscribe(t, leat, topic, pubsub.SubscriberConfig{Topics: topics})
		for _, payload := range []string{"", "x", "{\"a\": 1.0e400}", " 1", "\xff\x00", `"é\u0000"`, strings.Repeat("y", 1<<16)} {
			sent := message.NewMessage("an id of mine, ☂", []byte(payload))
			sent.Metadata = message.Metadata{"Name": "Value", "empty": "", "x": "<&>\u2028\"\\\n", "_watermill_x": "1", "leat-death-reason": "?"}
			require.NoError(t, pub.Publish(topic, sent))
			got := next(t, messages)
			require.True(t, sent.Equals(got), "%q, %v", got.Payload, got.Metadata)
			require.True(t, got.Ack())
		}
	}
}

func TestBadMessages(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	pub, messages := publisher(t, leat, pubsub.Topics{}), subscribe(t, leat, "q", pubsub.SubscriberConfig{})
	good := message.NewMessage("1", []byte("good"))
	for name, spoil := range map[string]func(*message.Message){
		"is taken":             func(m *message.Message) { m.Metadata[pubsub.UUIDHeader] = "2" },
		"is not UTF-8":         func(m *message.Message) { m.Metadata["a"] = "\xff" },
		`UUID "\xff"`:          func(m *message.Message) { m.UUID = "\xff" },
		"_watermill_delayed_":  func(m *message.Message) { m.Metadata[delay.DelayedForKey] = "soon" },
		"headers_too_large":    func(m *message.Message) { m.Metadata["a"] = strings.Repeat("x", 1<<16) },
		"payload_too_large":    func(m *message.Message) { m.Payload = make([]byte, 2<<20) },
		"must not contain NUL": func(m *message.Message) { m.Metadata["a"] = "\x00" },
	} {
		bad := message.NewMessage("2", []byte("bad"))
		spoil(bad)
		require.ErrorContains(t, pub.Publish("q", bad), name)
		require.ErrorContains(t, pub.Publish("q", message.NewMessage("3", nil), bad), name, "nothing of it is stored")
	}
	require.NoError(t, pub.Publish("q"))
	require.NoError(t, pub.Publish("q", good))
	require.Equal(t, "1", next(t, messages).UUID)
}

// A publish of several messages is one request, in their order, unless it is too
// large for one.
func TestPublishInOrder(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	topics := pubsub.Topics{Kind: pubsub.Streams}
	pub, messages := publisher(t, leat, topics), subscribe(t, leat, "s", pubsub.SubscriberConfig{Topics: topics})
	sent := make([]*message.Message, 50)
	for i := range sent {
		sent[i] = message.NewMessage(fmt.Sprint(i), nil)
	}
	require.NoError(t, pub.Publish("s", sent...))
	for i := range sent {
		got := next(t, messages)
		require.Equal(t, fmt.Sprint(i), got.UUID)
		got.Ack()
	}

	large := api.Message{PayloadBase64: make([]byte, 5<<20)}
	require.Equal(t, 10_000, pubsub.Part(make([]api.Message, 10_001)))
	require.Equal(t, 1, pubsub.Part([]api.Message{large, large}))
	require.Equal(t, 2, pubsub.Part([]api.Message{large, {}, large}))
	require.Equal(t, 1, pubsub.Part([]api.Message{{PayloadBase64: make([]byte, 20<<20)}}), "the server refuses it")
}

// Others publish without Watermill.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	messages := subscribe(t, leat, "q", pubsub.SubscriberConfig{})
	published, err := leat.Publish(t.Context(), "q", api.PublishRequest{Messages: []api.Message{{
		RoutingKey: "k", Payload: []byte(`{"a":1}`), Priority: 3,
		Headers: []byte(`{"n":12345678901234567890,"b":true,"s":"é","none":null}`),
	}}}, false)
	require.NoError(t, err)
	got := next(t, messages)
	require.Equal(t, published.Messages[0].MessageID.String(), got.UUID)
	require.Equal(t, message.Metadata{"n": "12345678901234567890", "b": "true", "s": "é", "none": ""}, got.Metadata)
	received, ok := pubsub.FromContext(got.Context())
	require.True(t, ok)
	require.Equal(t, "k", received.RoutingKey)
	require.Equal(t, 3, received.Priority)
	require.Equal(t, 1, received.Attempt)
	require.Nil(t, received.Position)
	_, ok = pubsub.FromContext(t.Context())
	require.False(t, ok)
}

// A message waits for its delay once, not again where it is published again.
func TestDelays(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	pub, messages := publisher(t, leat, pubsub.Topics{}), subscribe(t, leat, "q", pubsub.SubscriberConfig{})
	begin := time.Now()
	late := message.NewMessage("late", nil)
	delay.Message(late, delay.For(700*time.Millisecond))
	require.NoError(t, pub.Publish("q", late))
	require.NoError(t, pub.Publish("q", message.NewMessage("soon", nil)))
	for _, want := range []string{"soon", "late"} {
		got := next(t, messages)
		require.Equal(t, want, got.UUID)
		got.Ack()
	}
	require.GreaterOrEqual(t, time.Since(begin), 700*time.Millisecond)

	for name, metadata := range map[string]message.Metadata{
		"both, long ago": {delay.DelayedForKey: "1h", delay.DelayedUntilKey: time.Now().Add(-48 * time.Hour).Format(time.RFC3339)},
		"moment":         {delay.DelayedUntilKey: time.Now().Add(-time.Hour).Format(time.RFC3339)},
		"negative":       {delay.DelayedForKey: "-1h"},
	} {
		past := message.NewMessage(name, nil)
		past.Metadata = metadata
		require.NoError(t, pub.Publish("q", past))
		got := next(t, messages)
		require.Equal(t, name, got.UUID)
		got.Ack()
	}
	future := message.NewMessage("tomorrow", nil)
	delay.Message(future, delay.Until(time.Now().Add(24*time.Hour)))
	require.NoError(t, pub.Publish("q", future))
	channel, err := leat.Channel(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, 1, channel.Counts.Delayed)
	refused := publisher(t, leat, pubsub.Topics{Kind: pubsub.Streams}).Publish("s", future)
	require.ErrorContains(t, refused, "invalid_field")
}

type key struct{}

func TestContexts(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	for _, topics := range []pubsub.Topics{{}, {Kind: pubsub.Streams}} {
		topic := "contexts-" + topics.Kind.String()
		pub, sub := publisher(t, leat, topics), subscriber(t, leat, pubsub.SubscriberConfig{Topics: topics})
		require.NoError(t, pub.Publish(topic, message.NewMessage("1", nil), message.NewMessage("2", nil)))
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), key{}, "mine"))
		messages, err := sub.Subscribe(ctx, topic)
		require.NoError(t, err)

		one := next(t, messages)
		require.Equal(t, "mine", one.Context().Value(key{}))
		require.NoError(t, one.Context().Err())
		one.Nack()
		await(t, one.Context().Done())
		one = next(t, messages)
		if topics.Kind == pubsub.Streams {
			require.Equal(t, "1", one.UUID, "a nacked message of a stream comes again before others")
		}
		one.Ack()
		await(t, one.Context().Done())
		two := next(t, messages)
		require.NoError(t, two.Context().Err())
		stop()
		await(t, two.Context().Done())
		_, open := <-messages
		require.False(t, open)
	}
}

// What is out when a subscriber closes may still be acked, and does not come
// again then; what is not acked comes to the next one.
func TestCloseWaitsForAcks(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	for _, c := range []pubsub.SubscriberConfig{
		{}, {Topics: pubsub.Topics{Kind: pubsub.Exchanges}, Group: "g"}, {Topics: pubsub.Topics{Kind: pubsub.Streams}, Group: "g"},
	} {
		topic := "close-" + c.Topics.Kind.String()
		c.CloseTimeout = patience
		pub, sub := publisher(t, leat, c.Topics), subscriber(t, leat, c)
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		require.NoError(t, pub.Publish(topic, message.NewMessage("1", nil), message.NewMessage("2", nil)))
		one := next(t, messages)
		closed := make(chan error)
		go func() { closed <- sub.Close() }()
		for {
			_, err := sub.Subscribe(t.Context(), topic)
			if errors.Is(err, pubsub.ErrClosed) {
				break // it is closing
			}
		}
		require.NoError(t, one.Context().Err())
		require.True(t, one.Ack())
		require.NoError(t, <-closed)
		_, open := <-messages
		require.False(t, open)
		require.NoError(t, sub.Close())

		again := subscribe(t, leat, topic, c)
		two := next(t, again)
		require.Equal(t, "2", two.UUID)
		two.Ack()
	}
}

func TestClosedPublisher(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	pub := publisher(t, leat, pubsub.Topics{})
	require.NoError(t, pub.Publish("q", message.NewMessage("1", nil)))
	require.NoError(t, pub.Close())
	require.NoError(t, pub.Close())
	require.ErrorIs(t, pub.Publish("q", message.NewMessage("2", nil)), pubsub.ErrClosed)
}

// What is there is used as it is; what is missing is declared, or not.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	ctx := t.Context()
	_, err := leat.DeclareChannel(ctx, "mine", api.ChannelSpec{Mode: "fifo", Policy: api.PolicyPatch{MaxDeliveries: new(2)}})
	require.NoError(t, err)
	subscribe(t, leat, "mine", pubsub.SubscriberConfig{})
	subscribe(t, leat, "new", pubsub.SubscriberConfig{Topics: pubsub.Topics{FIFO: true}})
	channel, err := leat.Channel(ctx, "new")
	require.NoError(t, err)
	require.Equal(t, "fifo", channel.Mode)
	require.Equal(t, 1000, channel.Policy.MaxDeliveries)

	strict := pubsub.Topics{MustExist: true}
	require.ErrorContains(t, publisher(t, leat, strict).Publish("none", message.NewMessage("1", nil)), "channel_not_found")
	_, err = subscriber(t, leat, pubsub.SubscriberConfig{Topics: strict}).Subscribe(ctx, "none")
	require.ErrorContains(t, err, "channel_not_found")
	streams := pubsub.SubscriberConfig{Topics: pubsub.Topics{Kind: pubsub.Streams}}
	_, err = subscriber(t, leat, streams).Subscribe(ctx, "mine")
	require.ErrorContains(t, err, "mine is not a stream but a queue")

	for name, config := range map[string]pubsub.SubscriberConfig{
		"a queue with groups":     {Group: "g"},
		"an exchange without one": {Topics: pubsub.Topics{Kind: pubsub.Exchanges}},
		"a FIFO stream":           {Topics: pubsub.Topics{Kind: pubsub.Streams, FIFO: true}},
		"no such kind":            {Topics: pubsub.Topics{Kind: 7}},
		"partitions of nobody":    {Topics: pubsub.Topics{Kind: pubsub.Streams}, Partitions: 2},
	} {
		_, err := pubsub.NewSubscriber(leat, config, nil)
		require.Error(t, err, name)
	}
}

// A group of an exchange keeps the link that somebody made for it.
func TestGroupsOfExchanges(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	ctx := t.Context()
	topics := pubsub.Topics{Kind: pubsub.Exchanges, GroupQueue: func(topic, group string) string { return group + "_" + topic }}
	_, err := leat.DeclareChannel(ctx, "orders", api.ChannelSpec{Kind: "exchange", Type: "topic"})
	require.NoError(t, err)
	for group, pattern := range map[string]string{"all": "#", "eu": "eu.*"} {
		_, err := leat.DeclareChannel(ctx, group+"_orders", api.ChannelSpec{})
		require.NoError(t, err)
		_, err = leat.DeclareLink(ctx, api.LinkSpec{Source: "orders", Target: group + "_orders", Match: api.Match{Pattern: &pattern}})
		require.NoError(t, err)
	}
	pub, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Topics: topics, Marshaler: pubsub.DefaultMarshaler{
		RoutingKey: func(_ string, msg *message.Message) (string, error) { return msg.Metadata.Get("key"), nil },
	}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	all := subscribe(t, leat, "orders", pubsub.SubscriberConfig{Topics: topics, Group: "all"})
	eu := subscribe(t, leat, "orders", pubsub.SubscriberConfig{Topics: topics, Group: "eu"})
	for _, key := range []string{"us.1", "eu.2"} {
		msg := message.NewMessage(key, nil)
		msg.Metadata.Set("key", key)
		require.NoError(t, pub.Publish("orders", msg))
	}
	require.Equal(t, "eu.2", next(t, eu).UUID)
	one := next(t, all)
	require.Equal(t, "us.1", one.UUID)
	one.Ack()
	require.Equal(t, "eu.2", next(t, all).UUID)
}

// The members of a group share a stream, and take over from each other.
func TestGroupsOfStreams(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	topics := pubsub.Topics{Kind: pubsub.Streams}
	config := pubsub.SubscriberConfig{Topics: topics, Group: "g", Partitions: 4, CloseTimeout: 100 * time.Millisecond}
	require.NoError(t, subscriber(t, leat, config).SubscribeInitialize("s"))
	point, err := leat.Point(t.Context(), "s", "g")
	require.NoError(t, err)
	require.Len(t, point.Partitions, 4)
	config.Partitions = 0
	one, two := subscriber(t, leat, config), subscriber(t, leat, config)
	first, err := one.Subscribe(t.Context(), "s")
	require.NoError(t, err)
	second, err := two.Subscribe(t.Context(), "s")
	require.NoError(t, err)
	pub, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Topics: topics, Marshaler: pubsub.DefaultMarshaler{
		RoutingKey: func(_ string, msg *message.Message) (string, error) { return msg.UUID, nil },
	}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })

	seen := map[string]int{} // by whom
	publish := func(from, to int) {
		for n := from; n < to; n++ {
			require.NoError(t, pub.Publish("s", message.NewMessage(fmt.Sprint(n), nil)))
		}
		for len(seen) < to {
			select {
			case msg := <-first:
				seen[msg.UUID] |= 1
				msg.Ack()
			case msg, open := <-second:
				require.True(t, open)
				seen[msg.UUID] |= 2
				msg.Ack()
			case <-time.After(patience):
				t.Fatal("messages are missing")
			}
		}
	}
	publish(0, 40)
	members := 0
	for _, by := range seen {
		members |= by
	}
	require.Equal(t, 3, members)
	require.NoError(t, one.Close())
	first = nil
	publish(40, 80)
}

// A subscription whose queue is gone ends, and says so.
func TestSubscriptionEnds(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	logger := watermill.NewCaptureLogger()
	sub, err := pubsub.NewSubscriber(leat, pubsub.SubscriberConfig{}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	messages, err := sub.Subscribe(t.Context(), "q")
	require.NoError(t, err)
	require.NoError(t, leat.DeleteChannel(t.Context(), "q", true))
	select {
	case _, open := <-messages:
		require.False(t, open)
	case <-time.After(patience):
		t.Fatal("the subscription goes on")
	}
	said := logger.Captured()[watermill.ErrorLogLevel]
	require.Len(t, said, 1)
	problem, ok := errors.AsType[*api.Problem](said[0].Err)
	require.True(t, ok)
	require.Equal(t, eventstore.ChannelNotFound, problem.Code)
}

// picky reads no message of another kind.
type picky struct{ pubsub.DefaultMarshaler }

func (p picky) Unmarshal(received pubsub.Received) (*message.Message, error) {
	if received.RoutingKey == "bad" {
		return nil, errors.New("what is that?")
	}
	return p.DefaultMarshaler.Unmarshal(received)
}

func TestUnreadableMessages(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	bad := api.PublishRequest{Messages: []api.Message{{RoutingKey: "bad", Payload: []byte("1")}, {Payload: []byte("2")}}}
	messages := subscribe(t, leat, "q", pubsub.SubscriberConfig{Unmarshaler: picky{}})
	_, err := leat.Publish(t.Context(), "q", bad, false)
	require.NoError(t, err)
	require.Equal(t, "2", string(next(t, messages).Payload))
	var dead api.DeadLetterPage
	require.Eventually(t, func() bool {
		dead, err = leat.DeadLetters(t.Context(), "q", client.DeadLettersFilter{})
		return err == nil && len(dead.DeadLetters) == 1
	}, patience, time.Millisecond)
	require.Equal(t, "what is that?", dead.DeadLetters[0].Detail)

	messages = subscribe(t, leat, "s", pubsub.SubscriberConfig{Unmarshaler: picky{}, Topics: pubsub.Topics{Kind: pubsub.Streams}})
	_, err = leat.Publish(t.Context(), "s", bad, false)
	require.NoError(t, err)
	_, open := <-messages
	require.False(t, open)
}

// With Concurrency messages are out side by side.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	pub, messages := publisher(t, leat, pubsub.Topics{}), subscribe(t, leat, "q", pubsub.SubscriberConfig{Concurrency: 3, Prefetch: 3})
	for n := range 4 {
		require.NoError(t, pub.Publish("q", message.NewMessage(fmt.Sprint(n), nil)))
	}
	out := []*message.Message{next(t, messages), next(t, messages), next(t, messages)}
	select {
	case <-messages:
		t.Fatal("a fourth message is out")
	default:
	}
	out[0].Ack()
	next(t, messages)
}

// A UUID is stored once with Deduplicate.
func TestDeduplicate(t *testing.T) {
	t.Parallel()
	leat := setup(t)
	pub, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Marshaler: pubsub.DefaultMarshaler{Deduplicate: true}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if err := pub.Publish("q", message.NewMessage("1", []byte("x"))); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	channel, err := leat.Channel(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, 1, channel.Counts.Ready)
}

func publisher(t *testing.T, leat *client.Client, topics pubsub.Topics) *pubsub.Publisher {
	t.Helper()
	pub, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Topics: topics}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

func subscriber(t *testing.T, leat *client.Client, config pubsub.SubscriberConfig) *pubsub.Subscriber {
	t.Helper()
	if config.CloseTimeout == 0 {
		config.CloseTimeout = 100 * time.Millisecond
	}
	sub, err := pubsub.NewSubscriber(leat, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

func subscribe(t *testing.T, leat *client.Client, topic string, config pubsub.SubscriberConfig) <-chan *message.Message {
	t.Helper()
	messages, err := subscriber(t, leat, config).Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return messages
}

func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		require.True(t, open, "the channel is closed")
		return msg
	case <-time.After(patience):
		t.Fatal("no message came")
		return nil
	}
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
