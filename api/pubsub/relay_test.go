package pubsub_test

import (
	"fmt"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/pubsub"
	"leat/migrations/dbtest"
)

// What an application publishes by Watermill's SQL publisher in a transaction of
// its own comes by a relay to Watermill's subscribers, as it was.
func TestRelayOfWatermillSQL(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	leat := newBroker(t, pool).client(t)
	topics := pubsub.Topics{Kind: pubsub.Streams}
	messages := subscribe(t, leat, "orders", pubsub.SubscriberConfig{Topics: topics})
	bytes := wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "bytea" }}
	for topic, schema := range map[string]wsql.DefaultPostgreSQLSchema{"json": {}, "by-tes": bytes} {
		initial, err := wsql.NewPublisher(wsql.BeginnerFromPgx(pool), wsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
		require.NoError(t, err)
		sent := message.NewMessage("0 of "+topic, []byte(`{"n" : 0}`))
		sent.Metadata.Set("name", "välue")
		require.NoError(t, initial.Publish(topic, sent))
		relay, err := leat.DeclareRelay(t.Context(), topic, api.RelaySpec{Topic: topic, Channel: "orders", Every: api.Duration(10e6)})
		require.NoError(t, err)
		require.Zero(t, relay.Moved)
		got := next(t, messages)
		require.True(t, sent.Equals(got), "%v", got)
		got.Ack()

		for n := 1; n <= 3; n++ {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			pub, err := wsql.NewPublisher(wsql.TxFromPgx(tx), wsql.PublisherConfig{SchemaAdapter: schema}, nil)
			require.NoError(t, err)
			require.NoError(t, pub.Publish(topic, message.NewMessage(fmt.Sprint(n), []byte("1"))))
			if n == 2 {
				require.NoError(t, tx.Rollback(t.Context()))
				continue
			}
			require.NoError(t, tx.Commit(t.Context()))
		}
		for _, want := range []string{"1", "3"} {
			got := next(t, messages)
			require.Equal(t, want, got.UUID)
			got.Ack()
		}
	}
}
