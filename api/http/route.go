package httpapi

import (
	"net/http"
	"reflect"
	"strings"
)

// route is a method and path, what runs there, and what the document says.
type route struct {
	method string
	path   string // as in OpenAPI: /v1/channels/{name}
	run    func(*call) error
	op     operation
}

// ginPath writes a path in gin's notation.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// operation is a route for the document; the query parameters are also what the
// server accepts.
type operation struct {
	id      string
	summary string
	about   string // more than the summary
	hot     bool   // logged at debug level
	socket  bool   // serves WebSockets, and tells refusals there
	query   []parameter
	headers []parameter
	bodies  []body // alternatives by content type
	answers []answer
	frames  []reflect.Type // of the WebSocket, for the document
}

// parameter is of a query or a header.
type parameter struct {
	name string
	of   reflect.Type
	doc  string
}

// body is a request body; a nil type is any bytes.
type body struct {
	contentType string
	of          reflect.Type
	optional    bool
}

// answer is a response that is not a problem; a nil type is no body.
type answer struct {
	status      int
	doc         string
	of          reflect.Type
	contentType string
}

func query[T any](name, doc string) parameter { return parameter{name, reflect.TypeFor[T](), doc} }

func header[T any](name, doc string) parameter { return parameter{name, reflect.TypeFor[T](), doc} }

// takes is a JSON request body.
func takes[T any]() []body { return []body{{jsonType, reflect.TypeFor[T](), false}} }

// mayTake is a JSON request body that may be left out.
func mayTake[T any]() []body { return []body{{jsonType, reflect.TypeFor[T](), true}} }

// gives is a JSON answer.
func gives[T any](status int, doc string) answer {
	return answer{status, doc, reflect.TypeFor[T](), jsonType}
}

// ok is the JSON answer with status 200 alone.
func ok[T any](doc string) []answer { return []answer{gives[T](http.StatusOK, doc)} }

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
	sseType    = "text/event-stream"
)

// paging are the parameters of all lists that come in pages.
func paging(more ...parameter) []parameter {
	return append(more,
		query[string]("cursor", "nextCursor of the page before"),
		query[int]("limit", "1 to 1000, default 100"))
}
