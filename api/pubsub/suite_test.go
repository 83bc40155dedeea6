package pubsub_test

import (
	"cmp"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/api/pubsub"
	"leat/migrations/dbtest"
)

// suiteEnv chooses how much of Watermill's universal suite runs. Every test of
// it runs always, with fewer messages and subscribers; "full" is as many as the
// suite likes, with restarts of the broker, "stress" all that several times at
// once (STRESS_TEST_COUNT).
const suiteEnv = "LEAT_WATERMILL_SUITE"

// claim is a way that topics can be, and what is claimed of it.
type claim struct {
	topics   pubsub.Topics
	group    string // of subscribers that the suite gives none
	features tests.Features
}

// claims are by name. The suite nacks the first message of a FIFO queue some
// hundred times, which takes minutes when retries come ever more slowly.
var claims = map[string]claim{
	"Queues": {
		topics:   pubsub.Topics{Kind: pubsub.Queues},
		features: tests.Features{Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true},
	},
	"Exchanges": {
		topics:   pubsub.Topics{Kind: pubsub.Exchanges},
		group:    "all",
		features: tests.Features{Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, ConsumerGroups: true},
	},
	"FIFO": {
		topics: pubsub.Topics{Kind: pubsub.Exchanges, FIFO: true, Policy: api.PolicyPatch{
			Retry: api.RetryPatch{MaxDelay: new(api.Duration(10 * time.Millisecond))},
		}},
		group:    "all",
		features: tests.Features{Persistent: true, GuaranteedOrder: true, ConsumerGroups: true},
	},
	"StreamGroups": {
		topics:   pubsub.Topics{Kind: pubsub.Streams},
		group:    "all",
		features: tests.Features{Persistent: true, GuaranteedOrder: true, ConsumerGroups: true},
	},
	"Streams": {
		topics:   pubsub.Topics{Kind: pubsub.Streams},
		features: tests.Features{Persistent: true, GuaranteedOrder: true, ConsumerGroups: true, NewSubscriberReceivesOldMessages: true},
	},
}

// The suite that others wrote for every Pub/Sub.
func TestSuite(t *testing.T) { //nolint:tparallel // a restart stops all of them
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		t.Run(name, func(t *testing.T) {
			if os.Getenv(suiteEnv) == "" {
				t.Parallel()
			}
			run(t, claims[name], os.Getenv(suiteEnv))
		})
	}
}

func run(t *testing.T, c claim, size string) {
	t.Helper()
	broker := newBroker(t, dbtest.New(t))
	leat := broker.client(t)
	group := func(t *testing.T, name string) (message.Publisher, message.Subscriber) {
		return pair(t, leat, c.topics, cmp.Or(name, c.group))
	}
	plain := func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "") }
	switch size {
	case "":
		c.features.ForceShort = true
		tests.TestPubSub(t, c.features, plain, group)
	case "full":
		c.features.RestartServiceCommand = restartBySignal(t, broker)
		tests.TestPubSub(t, c.features, plain, group)
	case "stress":
		tests.TestPubSubStressTest(t, c.features, plain, group)
	default:
		t.Fatalf("%s is %q, not full or stress", suiteEnv, size)
	}
}

// pair makes a publisher and a subscriber. The suite leaves some of them open.
func pair(t *testing.T, leat *client.Client, topics pubsub.Topics, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	pub, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{Topics: topics}, nil)
	require.NoError(t, err)
	sub, err := pubsub.NewSubscriber(leat, pubsub.SubscriberConfig{Topics: topics, Group: group, CloseTimeout: 100 * time.Millisecond}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pub.Close())
		require.NoError(t, sub.Close())
	})
	return pub, sub
}

// restartBySignal answers the command that restarts the broker.
func restartBySignal(t *testing.T, b *broker) []string {
	t.Helper()
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range signals {
			if err := b.restart(); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		signal.Stop(signals)
		close(signals)
		<-done
	})
	return []string{"kill", "-USR1", strconv.Itoa(os.Getpid())}
}
