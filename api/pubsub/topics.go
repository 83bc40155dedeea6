package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// Kind is what a topic is in Leat.
type Kind int

const (
	// Queues makes a topic a queue: its subscribers share the messages.
	Queues Kind = iota
	// Exchanges makes a topic a fanout exchange, and each consumer group of it a
	// queue, which gets all messages from its declaration on.
	Exchanges
	// Streams makes a topic a stream, and each consumer group of it a replication
	// point. A subscriber without a group reads on its own.
	Streams
)

// String is the name of the channels' kind.
func (k Kind) String() string {
	switch k {
	case Queues:
		return "queue"
	case Exchanges:
		return "exchange"
	case Streams:
		return "stream"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// Topics says what topics are, and how those that are missing are declared. The
// publishers and the subscribers of a topic are given the same. What is there
// already is used as it is.
type Topics struct {
	// Kind is what a topic is. Default Queues.
	Kind Kind
	// MustExist leaves it to others to declare channels and links: what is missing is
	// an error. Default false: it is declared when it is used first.
	MustExist bool
	// FIFO declares queues that keep the order of each routing key, however many
	// subscribers they have. Default false.
	FIFO bool
	// Policy is that of declared queues or streams. Default: the server's, but for
	// queues maxDeliveries is 1,000, and a nacked message comes again after 10 ms, and
	// later ever more slowly, up to 5 s.
	Policy api.PolicyPatch
	// GroupQueue names the queue of a group of an exchange. Default: topic.group.
	GroupQueue func(topic, group string) string
}

func (t Topics) check() error {
	if t.Kind < Queues || t.Kind > Streams {
		return fmt.Errorf("topics: there is no %v", t.Kind)
	}
	if t.FIFO && t.Kind == Streams {
		return errors.New("topics: a stream has no mode, it always keeps the order")
	}
	return nil
}

func (t Topics) groupQueue(topic, group string) string {
	if t.GroupQueue != nil {
		return t.GroupQueue(topic, group)
	}
	return topic + "." + group
}

// spec is how a missing topic is declared.
func (t Topics) spec() api.ChannelSpec {
	switch t.Kind {
	case Exchanges:
		return api.ChannelSpec{Kind: "exchange", Type: "fanout"}
	case Streams:
		return api.ChannelSpec{Kind: "stream", Policy: t.Policy}
	default:
		return t.queue()
	}
}

// Watermill nacks without a limit, and expects the message again at once.
const (
	maxDeliveries = 1000
	baseDelay     = api.Duration(10 * time.Millisecond)
	maxDelay      = api.Duration(5 * time.Second)
)

func (t Topics) queue() api.ChannelSpec {
	spec := api.ChannelSpec{Kind: "queue", Policy: t.Policy}
	if t.FIFO {
		spec.Mode = "fifo"
	}
	if spec.Policy.MaxDeliveries == nil {
		spec.Policy.MaxDeliveries = new(maxDeliveries)
	}
	if spec.Policy.Retry.BaseDelay == nil {
		spec.Policy.Retry.BaseDelay = new(baseDelay)
	}
	if spec.Policy.Retry.MaxDelay == nil {
		spec.Policy.Retry.MaxDelay = new(max(maxDelay, *spec.Policy.Retry.BaseDelay))
	}
	return spec
}

// declare makes a channel if it is missing. One that is there keeps its
// settings.
func declare(ctx context.Context, leat *client.Client, name string, spec api.ChannelSpec) error {
	_, err := leat.DeclareChannel(ctx, name, spec)
	if codeOf(err) == eventstore.ChannelConflict {
		channel, err := leat.Channel(ctx, name)
		if err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		if channel.Kind != spec.Kind {
			return &api.Problem{
				Type: "urn:leat:problem:" + string(eventstore.ChannelConflict), Code: eventstore.ChannelConflict,
				Detail: fmt.Sprintf("%s is not %s but %s.", name, article(spec.Kind), article(channel.Kind)),
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("declare %s: %w", name, err)
	}
	return nil
}

func article(kind string) string {
	if kind == "exchange" {
		return "an " + kind
	}
	return "a " + kind
}

// codeOf is the code of a refusal, "" of any other error.
func codeOf(err error) eventstore.Code {
	if problem, ok := errors.AsType[*api.Problem](err); ok {
		return problem.Code
	}
	return ""
}

// bind makes the queue of a group, and a link that leads to it. Whoever linked
// it already knows which messages it is to get.
func bind(ctx context.Context, leat *client.Client, topics Topics, topic, group string) error {
	queue := topics.groupQueue(topic, group)
	if err := declare(ctx, leat, queue, topics.queue()); err != nil {
		return err
	}
	page, err := leat.Links(ctx, client.LinksFilter{Source: topic, Target: queue, Limit: 1})
	if err != nil {
		return fmt.Errorf("look for links from %s to %s: %w", topic, queue, err)
	}
	if len(page.Links) > 0 {
		return nil
	}
	if _, err := leat.DeclareLink(ctx, api.LinkSpec{Source: topic, Target: queue}); err != nil {
		return fmt.Errorf("link %s to %s: %w", topic, queue, err)
	}
	return nil
}
