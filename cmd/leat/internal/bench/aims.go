package bench

import "strings"

// Aim compares the broker with a floor, or its cost with a bound.
type Aim struct {
	Case   string  `json:"case"`
	Side   string  `json:"side"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Wanted float64 `json:"wanted"`
	// AtMost says that the value should not be above what is wanted; otherwise it
	// should not be below.
	AtMost bool `json:"atMost"`
	Met    bool `json:"met"`
}

// aim is what is wanted in a case.
type aim struct {
	name   string
	in     string // case
	of     string // side; "": the broker, whichever the way to it
	to     string // side of the floor; "": the figure itself
	over   bool   // what it is more than the floor's, and not the ratio to it
	figure func(sample) float64
	want   float64
	atMost bool
}

// aims are those of the project, on its usual machine.
func aims() []aim {
	var aims []aim
	for _, c := range []string{"1x100", "8x100", "64x100", "1x1000", "8x1000"} {
		aims = append(aims, aim{name: "rate to COPY", in: "publish/" + c, to: "copy", figure: rate, want: 0.5})
	}
	aims = append(aims, aim{name: "rate to single INSERTs", in: "publish/64x1", to: "insert", figure: rate, want: 5})
	for _, c := range []string{"1x100", "8x100"} {
		aims = append(aims, aim{name: "rate to lease+delete", in: "drain/" + c, to: "lease+delete", figure: rate, want: 3})
	}
	for _, c := range []string{"1x100", "8x100"} {
		aims = append(aims,
			aim{name: "server CPU, us/message", in: "cycle/" + c, figure: serverMicros, want: 20, atMost: true},
			aim{name: "WAL, bytes/message", in: "cycle/" + c, figure: walBytes, want: 600, atMost: true})
	}
	for _, c := range []string{"max1", "max10"} {
		aims = append(aims, aim{name: "rate to insert + delete pair", in: "endtoend/" + c, to: "pair", figure: rate, want: 3})
	}
	aims = append(aims,
		aim{name: "p50 to the pair's", in: "latency/max10", to: "pair", figure: millisAt(50), want: 1, atMost: true},
		aim{name: "p99 to the pair's", in: "latency/max10", to: "pair", figure: millisAt(99), want: 1, atMost: true})
	for _, c := range []string{"ready-1", "ready-100", "keys-1", "keys-100"} {
		aims = append(aims,
			aim{name: "time of a claim, to that with few", in: "depth/" + c, of: deep, to: shallow, figure: took, want: 1.5, atMost: true},
			aim{name: "server CPU of a claim, to that with few", in: "depth/" + c, of: deep, to: shallow, figure: serverMicros, want: 1.5, atMost: true})
	}
	for _, c := range []string{"64x1", "8x100"} {
		aims = append(aims, aim{name: "server CPU to one queue's", in: "fanout/" + c, to: intoOne, figure: serverMicros, want: 3, atMost: true})
	}
	aims = append(aims,
		aim{name: "messages/s", in: "stream/rate", figure: rate, want: tailRate * 0.97},
		aim{name: "messages/s, to all", in: "stream/fanout", figure: rate, want: 175_000},
		aim{name: "p50 over the commit, to a bare tail's", in: "stream/latency", to: bare, figure: millisAt(50), want: 1.5, atMost: true},
		aim{name: "messages/s", in: "stream/catchup", figure: rate, want: 100_000},
		aim{name: "MiB", in: "stream/idle", figure: memoryMiB, want: 100, atMost: true})
	aims = append(aims, auditAims()...)
	return append(aims,
		aim{name: "messages/s", in: "rebuild/half-settled", figure: rate, want: 150_000},
		aim{name: "messages/s", in: "failure/open", figure: rate, want: failedMessages},
		aim{name: "messages/s", in: "failure/recover", figure: rate, want: failedMessages / 10},
		aim{name: "WAL, bytes/message", in: "failure/recover", figure: walBytes, want: 2, atMost: true})
}

// judge compares what was measured with the aims; what was not is left out.
func (r *Report) judge() {
	for _, a := range aims() {
		samples := r.samples[a.in]
		for _, f := range r.Figures {
			if f.Case != a.in || !a.isOf(f.Side) {
				continue
			}
			value := a.value(samples[f.Side], samples[a.to])
			if value == 0 {
				continue // a cost that cannot be read here
			}
			met := value >= a.want
			if a.atMost {
				met = value <= a.want
			}
			r.Aims = append(r.Aims, Aim{
				Case: f.Case, Side: f.Side, Name: a.name, Value: value, Wanted: a.want, AtMost: a.atMost, Met: met,
			})
		}
	}
}

func (a aim) isOf(side string) bool {
	if a.of != "" {
		return side == a.of
	}
	return side == leat || strings.HasPrefix(side, leat+" ")
}

// minimal is a difference that is not there, and yet was measured.
const minimal = 1e-9

// value is the median over the rounds: of the figure, or of its ratio to the
// floor's in the same round.
func (a aim) value(ours, floors []sample) float64 {
	values := make([]float64, len(ours))
	for i, s := range ours {
		values[i] = a.figure(s)
		if a.to == "" {
			continue
		}
		floor := a.figure(floors[i])
		switch {
		case floor == 0:
			return 0
		case a.over:
			values[i] = max(values[i]-floor, minimal) // noise may take it below
		default:
			values[i] /= floor
		}
	}
	return middle(values)
}
