package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/migrations/dbtest"
)

// Dead letters are listed, recovered one by one and together, sent elsewhere
// and removed.
func TestDeadLettersByHand(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--durable-views")
	broker.leat("channel", "declare", "orders")
	broker.leat("channel", "declare", "repair")
	for i := range 5 {
		broker.leat("publish", "orders", fmt.Sprint(i), "--key", fmt.Sprint("customer-", i))
		broker.leat("nack", "orders", take(broker).Receipt, "--action", "deadLetter", "--reason", "no such customer")
	}
	dead := value[api.DeadLetterPage](broker, "dlq", "list", "orders", "--after", "1h").DeadLetters
	require.Len(t, dead, 5)
	require.Empty(t, value[api.DeadLetterPage](broker, "dlq", "list", "orders", "--before", "1h").DeadLetters)

	id := dead[0].MessageID.String()
	require.Contains(t, broker.leat("dlq", "recover", "orders", "--id", id), "1 recovered")
	again := broker.exits(exitRefused, "", "dlq", "recover", "orders", "--id", id)
	require.Contains(t, again.out, "message_not_dead")
	broker.exits(exitFailed, "to must not be empty", "dlq", "recover", "orders", "--all", "--to", "")
	broker.exits(exitFailed, "filter.reason must not be empty", "dlq", "purge", "orders", "--key", "customer-1", "--reason", "", "--yes")
	require.EqualValues(t, 1, value[api.RecoverResult](broker, "dlq", "recover", "orders", "--key", "customer-1").Recovered)
	require.Contains(t, broker.leat("dlq", "recover", "orders", "--id", dead[2].MessageID.String(), "--to", "repair"), "1 recovered")
	require.Contains(t, broker.leat("dlq", "purge", "orders", "--id", dead[3].MessageID.String(), "--yes"), "1 removed")
	require.Contains(t, broker.leat("dlq", "recover", "orders", "--all", "--ttl", "1h"), "1 recovered")
	require.Contains(t, broker.leat("dlq", "recover", "orders", "--all"), "0 recovered")
	broker.leat("verify")
}
