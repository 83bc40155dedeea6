package eventstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// A receipt has one spelling: what is read is what was written.
func FuzzReceipt(f *testing.F) {
	for _, seed := range []string{
		"57:12", "1:1", "9223372036854775807:9223372036854775807", "9223372036854775808:1", "0:1", "1:0", "01:1", "-1:1", "+1:1",
		" 1:1", "1:1 ", "1 :1", "1:1:1", ":", "1:", ":1", "", "1", "1:0x1", "1e1:1", "1_0:1", "１:1", "1:1\x00", "\xff:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		receipt, err := eventstore.ParseReceipt(text)
		if err != nil {
			require.Zero(t, receipt)
			return
		}
		require.Positive(t, receipt.Delivery)
		require.Positive(t, receipt.Message)
		require.Equal(t, text, receipt.String())
	})
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]eventstore.Receipt{
		"57:12": {Delivery: 57, Message: 12},
		"9223372036854775807:9223372036854775807": {Delivery: 1<<63 - 1, Message: 1<<63 - 1},
	} {
		got, err := eventstore.ParseReceipt(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "1", ":", "0:1", "1:0", "01:1", "-1:1", "1:1:1", "9223372036854775808:1"} {
		_, err := eventstore.ParseReceipt(text)
		require.Error(t, err, text)
	}
}
