package api

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	"leat/eventstore"
)

// Codes that only HTTP needs.
const (
	UnsupportedMediaType eventstore.Code = "unsupported_media_type" // of a request body
	NotAcceptable        eventstore.Code = "not_acceptable"         // none of what Accept asks for is served
	CrossOrigin          eventstore.Code = "cross_origin"           // a page of another site called
)

// ContentProblem is the content type of a Problem.
const ContentProblem = "application/problem+json"

// Problem is the body of every answer that refuses a request, as in RFC 9457.
// The client returns it as the error.
type Problem struct { //nolint:errname // the body of an answer first, by the standard's name
	Type      string          `json:"type" doc:"urn:leat:problem: and the code"`
	Title     string          `json:"title" doc:"the same for every problem of the code"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail" doc:"one sentence for people"`
	Instance  string          `json:"instance,omitempty" doc:"the path that was called"`
	Code      eventstore.Code `json:"code" doc:"for programs"`
	RequestID string          `json:"requestId,omitempty" doc:"finds the request in the broker's log"`
	Uncertain bool            `json:"uncertain,omitempty" doc:"it is not known whether the request was carried out"`
	Resume    *StreamPosition `json:"resume,omitempty" doc:"of a stream: where reading, or committing, can go on"`
	// FirstPosition is of events_gone.
	FirstPosition eventstore.Position `json:"firstPosition,omitempty" doc:"of the log: the first that is still there"`
	Errors        []ProblemItem       `json:"errors,omitempty" nullable:"false" doc:"the bad fields and items, where there are such"`

	// RetryAfter is the header of that name, where the client read one.
	RetryAfter time.Duration `json:"-"`
}

// ProblemItem is one thing that is wrong with a request.
type ProblemItem struct {
	Index  *int            `json:"index,omitempty" doc:"of the message or receipt in the request, from 0"`
	Field  string          `json:"field,omitempty" doc:"path of the field, such as policy.retry.jitter"`
	Code   eventstore.Code `json:"code"`
	Detail string          `json:"detail"`
}

// Error is the code and the detail.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// NewProblem is a problem with the status and title of its code.
func NewProblem(code eventstore.Code, detail string) *Problem {
	s := StatusOf(code)
	return &Problem{Type: "urn:leat:problem:" + string(code), Title: s.Title, Status: s.Status, Detail: detail, Code: code}
}

// CodeStatus is what HTTP says of a code.
type CodeStatus struct {
	Status int
	Title  string
}

// statuses is the one table from code to HTTP.
var statuses = map[eventstore.Code]CodeStatus{
	eventstore.InvalidRequest:      {http.StatusBadRequest, "The request cannot be read"},
	eventstore.UnknownField:        {http.StatusBadRequest, "The request has an unknown field"},
	eventstore.InvalidField:        {http.StatusUnprocessableEntity, "A value is not allowed"},
	eventstore.BatchEmpty:          {http.StatusUnprocessableEntity, "The request has no items"},
	eventstore.BatchTooLarge:       {http.StatusRequestEntityTooLarge, "The request has too many items"},
	eventstore.PayloadTooLarge:     {http.StatusRequestEntityTooLarge, "The payload is too large"},
	eventstore.HeadersTooLarge:     {http.StatusUnprocessableEntity, "The headers are too large"},
	eventstore.KeyTooLong:          {http.StatusUnprocessableEntity, "The routing key is too long"},
	eventstore.ReceiptMalformed:    {http.StatusUnprocessableEntity, "This is not a receipt"},
	eventstore.ChannelNotFound:     {http.StatusNotFound, "There is no such channel"},
	eventstore.ChannelConflict:     {http.StatusConflict, "The channel exists with other settings"},
	eventstore.ChannelNotEmpty:     {http.StatusConflict, "The channel holds messages"},
	eventstore.ChannelInUse:        {http.StatusConflict, "The channel takes the dead letters of others"},
	eventstore.LinkNotFound:        {http.StatusNotFound, "There is no such link"},
	eventstore.LinkConflict:        {http.StatusConflict, "The link exists with other settings"},
	eventstore.LinkCycle:           {http.StatusConflict, "The link would make a cycle"},
	eventstore.OrderLost:           {http.StatusConflict, "A FIFO queue would get messages in no order"},
	eventstore.MessageNotFound:     {http.StatusNotFound, "There is no such message"},
	eventstore.MessageNotDead:      {http.StatusConflict, "The message is not a dead letter"},
	eventstore.Unroutable:          {http.StatusUnprocessableEntity, "No link leads the message anywhere"},
	eventstore.DedupConflict:       {http.StatusConflict, "The dedupId was used for other content"},
	eventstore.EpochChanged:        {http.StatusConflict, "The stream is another one than before"},
	eventstore.OffsetGone:          {http.StatusGone, "The offset is below what the stream keeps"},
	eventstore.OffsetAhead:         {http.StatusConflict, "The offset is beyond the end of the stream"},
	eventstore.EventsGone:          {http.StatusGone, "The log begins later"},
	eventstore.PositionAhead:       {http.StatusConflict, "The log has not come so far"},
	eventstore.PointNotFound:       {http.StatusNotFound, "There is no such replication point"},
	eventstore.ProjectionNotFound:  {http.StatusNotFound, "There is no such projection"},
	eventstore.PointConflict:       {http.StatusConflict, "The replication point exists with other settings"},
	eventstore.PointTaken:          {http.StatusConflict, "Another consumer reads with the replication point"},
	eventstore.PointMoved:          {http.StatusConflict, "The replication point was moved by somebody else"},
	eventstore.CommitBehind:        {http.StatusConflict, "The replication point is further on"},
	eventstore.RelayNotFound:       {http.StatusNotFound, "There is no such relay"},
	eventstore.RelayConflict:       {http.StatusConflict, "The relay exists with other settings"},
	eventstore.ReplayNotFound:      {http.StatusNotFound, "There is no such replay"},
	eventstore.ReplayTaken:         {http.StatusConflict, "The replay goes on elsewhere"},
	eventstore.ViewsRebuilding:     {http.StatusServiceUnavailable, "The queue views are being rebuilt"},
	eventstore.DatabaseUnavailable: {http.StatusServiceUnavailable, "The database is not available"},
	eventstore.Busy:                {http.StatusServiceUnavailable, "Something else holds what this needs"},
	eventstore.ShuttingDown:        {http.StatusServiceUnavailable, "The broker is shutting down"},
	eventstore.MethodNotAllowed:    {http.StatusMethodNotAllowed, "The method is not allowed here"},
	eventstore.NotFound:            {http.StatusNotFound, "There is no such resource"},
	eventstore.Internal:            {http.StatusInternalServerError, "The broker failed"},
	eventstore.LeaseLost:           {http.StatusConflict, "The lease is over"},
	eventstore.AlreadySettled:      {http.StatusConflict, "The message was settled in another way"},
	eventstore.ReceiptUnknown:      {http.StatusNotFound, "The queue never gave out this receipt"},
	UnsupportedMediaType:           {http.StatusUnsupportedMediaType, "The content type is not served"},
	NotAcceptable:                  {http.StatusNotAcceptable, "No such content type is served here"},
	CrossOrigin:                    {http.StatusForbidden, "Pages of other sites may not call"},
}

// Codes are all codes with what HTTP says of them.
func Codes() map[eventstore.Code]CodeStatus { return maps.Clone(statuses) }

// StatusOf is the status and title of a code; a code that is not in the table
// is the broker's own failure.
func StatusOf(code eventstore.Code) CodeStatus {
	if s, ok := statuses[code]; ok {
		return s
	}
	return CodeStatus{http.StatusInternalServerError, string(code)}
}
