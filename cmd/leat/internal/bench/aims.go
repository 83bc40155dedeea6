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

// aim is what is wanted of the broker in a case, whichever the way to it.
type aim struct {
	name   string
	in     string // case
	to     string // the floor's side; "": the figure itself
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
	return aims
}

// judge compares what was measured with the aims; what was not is left out.
func (r *Report) judge() {
	for _, a := range aims() {
		samples := r.samples[a.in]
		for _, f := range r.Figures {
			if f.Case != a.in || !isLeat(f.Side) {
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

func isLeat(side string) bool { return side == leat || strings.HasPrefix(side, leat+" ") }

// value is the median over the rounds: of the figure, or of its ratio to the
// floor's in the same round.
func (a aim) value(ours, floors []sample) float64 {
	values := make([]float64, len(ours))
	for i, s := range ours {
		values[i] = a.figure(s)
		if a.to != "" {
			values[i] /= a.figure(floors[i])
		}
	}
	return middle(values)
}
