package bench

import (
	"slices"
	"time"
)

// Report is what a run found.
type Report struct {
	Server    string   `json:"server"`    // version of PostgreSQL
	Mode      string   `json:"mode"`      // of the queues
	Keys      int      `json:"keys"`      // routing keys in use
	Payload   int      `json:"payload"`   // bytes
	Rounds    int      `json:"rounds"`    // each figure is a median of so many
	Shortened bool     `json:"shortened"` // sizes were divided: the figures prove nothing
	Figures   []Figure `json:"figures"`   // by case and side
	Aims      []Aim    `json:"aims"`      // of those cases that were run

	samples map[string]map[string][]sample // by case and side
}

// Figure is one side of a case: medians over the rounds.
type Figure struct {
	Case      string   `json:"case"`
	Side      string   `json:"side"`
	Label     string   `json:"label"`    // the side, for people
	Messages  int      `json:"messages"` // of all rounds
	PerSecond float64  `json:"perSecond"`
	ServerCPU *float64 `json:"serverCpuMicros"` // per message; null: cannot be seen
	TailCPU   *float64 `json:"tailCpuMicros"`   // the part of it that reads the log for tails; null: none does, or it cannot be seen
	ClientCPU *float64 `json:"clientCpuMicros"` // per message, broker and load; null: cannot be seen
	CLICPU    *float64 `json:"cliCpuMicros"`    // per message, of a command line beside them; null: none
	WAL       float64  `json:"walBytes"`        // per message, of the whole server
	P50       *float64 `json:"p50Millis"`       // latency; null: not measured
	P99       *float64 `json:"p99Millis"`
	Memory    *float64 `json:"memoryMiB"`   // of the broker, more than before; null: not measured
	Megabytes *float64 `json:"mbPerSecond"` // that were read, in millions of bytes; null: not measured
	Lag       *float64 `json:"lagMillis"`   // of projections, behind the last message; null: not measured
}

func (l *lab) newReport() *Report {
	return &Report{
		Server: l.server, Mode: l.cfg.Mode, Keys: l.cfg.Keys, Payload: l.cfg.Payload, Rounds: l.cfg.Rounds,
		Shortened: l.cfg.Scale > 1, Figures: []Figure{}, Aims: []Aim{}, samples: map[string]map[string][]sample{},
	}
}

// add reports the samples of a case.
func (r *Report) add(one work, samples map[string][]sample) {
	r.samples[one.name] = samples
	for _, s := range one.sides {
		r.Figures = append(r.Figures, figure(one.name, s, samples[s.name]))
	}
}

func figure(name string, s side, samples []sample) Figure {
	f := Figure{Case: name, Side: s.name, Label: or(s.label, s.name), PerSecond: median(samples, rate), WAL: median(samples, walBytes)}
	for _, s := range samples {
		f.Messages += s.messages
	}
	f.ServerCPU = known(median(samples, serverMicros))
	f.TailCPU = known(median(samples, tailMicros))
	f.CLICPU = known(median(samples, cliMicros))
	f.Memory = known(median(samples, memoryMiB))
	f.Megabytes = known(median(samples, megabytes))
	f.Lag = known(median(samples, lagMillis))
	f.ClientCPU = known(median(samples, clientMicros))
	if samples[0].latency != nil {
		f.P50, f.P99 = known(median(samples, millisAt(50))), known(median(samples, millisAt(99)))
	}
	return f
}

// known is nil for what could not be read.
func known(value float64) *float64 {
	if value == 0 {
		return nil
	}
	return &value
}

// rate is up to the last message.
func rate(s sample) float64 { return float64(s.messages) / (s.took - s.lag).Seconds() }

func took(s sample) float64 { return micros(s.took) / float64(s.messages) }

func walBytes(s sample) float64 { return float64(s.wal) / float64(s.messages) }

func serverMicros(s sample) float64 { return micros(s.server) / float64(s.messages) }

func tailMicros(s sample) float64 { return micros(s.tail) / float64(s.messages) }

func memoryMiB(s sample) float64 { return float64(s.memory) / (1 << 20) }

func clientMicros(s sample) float64 { return micros(s.client) / float64(s.messages) }

func cliMicros(s sample) float64 { return micros(s.program) / float64(s.messages) }

func megabytes(s sample) float64 { return float64(s.bytes) / 1e6 / s.took.Seconds() }

func lagMillis(s sample) float64 { return micros(s.lag) / 1000 }

// processor is how much of one the broker, its load and PostgreSQL take at
// steadyRate, in percent.
func processor(s sample) float64 { return (serverMicros(s) + clientMicros(s)) * steadyRate / 1e4 }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millisAt(quantile float64) func(sample) float64 {
	return func(s sample) float64 { return float64(s.latency.ValueAtQuantile(quantile)) / 1000 }
}

// median of a figure over the rounds.
func median(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return middle(values)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
