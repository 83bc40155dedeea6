package async

import (
	"fmt"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// accuracy is how far a percentile may be from the true one, of its value.
const accuracy = 0.01

// sketch is a distribution of latencies, in seconds. Sketches can be added up: those of
// many minutes give the percentiles of an hour.
type sketch struct{ of *ddsketch.DDSketch }

// add counts a latency, in microseconds. Clocks of one server do not go back by much:
// what is below 0 is 0.
func (s *sketch) add(micros int64) error {
	if s.of == nil {
		fresh, err := ddsketch.NewDefaultDDSketch(accuracy)
		if err != nil {
			return err
		}
		s.of = fresh
	}
	return s.of.Add(float64(max(micros, 0)) / 1e6)
}

// load reads what bytes wrote.
func (s *sketch) load(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	of, err := ddsketch.DecodeDDSketch(data, store.DefaultProvider, nil)
	if err != nil {
		return fmt.Errorf("a sketch of leat.channel_minutes is damaged: %w", err)
	}
	s.of = of
	return nil
}

// bytes are nil for an empty sketch.
func (s *sketch) bytes() []byte {
	if s.of == nil {
		return nil
	}
	var data []byte
	s.of.Encode(&data, false)
	return data
}
