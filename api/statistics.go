package api

import (
	"time"

	"leat/eventstore"
)

// StatisticsList is what happened in channels.
type StatisticsList struct {
	From       time.Time           `json:"from" doc:"rounded down to a minute"`
	To         time.Time           `json:"to" doc:"rounded up to a minute; not included"`
	Step       Duration            `json:"step"`
	Position   eventstore.Position `json:"position" doc:"at least up to here the log is counted"`
	Statistics []Statistics        `json:"statistics" nullable:"false" doc:"by channel and time; intervals without anything are left out"`
}

// Statistics are of one channel in one interval.
type Statistics struct {
	Channel       string    `json:"channel"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	Published     int64     `json:"published"`
	Copied        int64     `json:"copied" doc:"copies that links, redrives and dead letters brought here"`
	Delivered     int64     `json:"delivered" doc:"every attempt"`
	Acked         int64     `json:"acked"`
	Retried       int64     `json:"retried" doc:"attempts that a consumer gave up, but for the last one of a message"`
	LeaseExpired  int64     `json:"leaseExpired"`
	Released      int64     `json:"released"`
	DeadLettered  int64     `json:"deadLettered"`
	Recovered     int64     `json:"recovered"`
	Expired       int64     `json:"expired"`
	Purged        int64     `json:"purged"`
	Discarded     int64     `json:"discarded"`
	FirstDelivery Latencies `json:"firstDelivery" doc:"of messages delivered for the first time in the interval: since the publish, or the due time"`
	Ack           Latencies `json:"ack" doc:"of messages acked in the interval, since the publish, or the due time"`
}

// Latencies are percentiles, right by 1 %.
type Latencies struct {
	Count int64    `json:"count" doc:"messages; 0: there are no percentiles"`
	P50   Duration `json:"p50"`
	P90   Duration `json:"p90"`
	P99   Duration `json:"p99"`
	Max   Duration `json:"max"`
}

// ConsumerList is who took or settled messages, the last one first.
type ConsumerList struct {
	Position  eventstore.Position `json:"position" doc:"at least up to here the log is counted"`
	Consumers []ConsumerActivity  `json:"consumers" nullable:"false"`
}

// ConsumerActivity is what a consumer did in a channel.
type ConsumerActivity struct {
	Channel   string    `json:"channel"`
	Consumer  string    `json:"consumer" doc:"as the log calls it; empty: not known"`
	FirstSeen time.Time `json:"firstSeen"`
	LastSeen  time.Time `json:"lastSeen"`
	Delivered int64     `json:"delivered" doc:"to it"`
	Acked     int64     `json:"acked"`
	Failed    int64     `json:"failed" doc:"attempts that it gave up: retried or dead-lettered"`
	Released  int64     `json:"released"`
}

// FailureList is which keys failed, most failures first.
type FailureList struct {
	Position eventstore.Position `json:"position" doc:"at least up to here the log is counted"`
	Failures []Failure           `json:"failures" nullable:"false"`
}

// Failure is a routing key of a channel, and a reason for which it failed.
type Failure struct {
	Channel     string               `json:"channel"`
	RoutingKey  string               `json:"routingKey"`
	Reason      string               `json:"reason" doc:"the error class, else the words of the consumer, else why the broker says so"`
	Failures    int64                `json:"failures" doc:"attempts that failed"`
	Dead        int64                `json:"dead" doc:"messages that became dead letters"`
	FirstAt     time.Time            `json:"firstAt"`
	LastAt      time.Time            `json:"lastAt"`
	LastMessage eventstore.MessageID `json:"lastMessage" doc:"the newest one that failed so"`
}

// ProjectionList is the asynchronous projections.
type ProjectionList struct {
	Projections []Projection `json:"projections" nullable:"false" doc:"by name; one that is being rebuilt is there twice"`
}

// Projection is a generation of a view that follows the log behind its commits.
type Projection struct {
	Name         string              `json:"name"`
	Generation   int                 `json:"generation" doc:"a rebuild makes another one"`
	Version      int                 `json:"version" doc:"of the code that makes it"`
	State        string              `json:"state" enum:"live,building,retired" doc:"live: queries read it; building: it takes the place of the live one when it has caught up; retired: being removed"`
	Stopped      bool                `json:"stopped" doc:"by hand"`
	Position     eventstore.Position `json:"position" doc:"up to where the log is in it"`
	LagPositions int64               `json:"lagPositions" doc:"behind the settled position"`
	Lag          Duration            `json:"lag" doc:"age of the first event that is not in it"`
	MovedAt      time.Time           `json:"movedAt"`
	Failure      *ProjectionFailure  `json:"failure,omitempty" doc:"it waits at an event that it cannot take, until somebody says retry or skip"`
}

// ProjectionFailure is why a projection waits.
type ProjectionFailure struct {
	Position eventstore.Position `json:"position" doc:"of the event"`
	At       time.Time           `json:"at"`
	Error    string              `json:"error"`
}

// ProjectionResult says what became of a projection.
type ProjectionResult struct {
	Changed bool `json:"changed" doc:"false: it was like that before, or there was nothing to do"`
}
