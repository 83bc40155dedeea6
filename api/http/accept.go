package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"leat/api"
	"leat/eventstore"
)

// framingOf chooses by Accept: what has the highest quality, and of equals what
// is named first.
func framingOf(r *http.Request, filtered bool) (framing, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" {
		return ndjson{}, nil
	}
	var (
		best framing
		most float64
	)
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, given := params["q"]; given {
			quality, _ = strconv.ParseFloat(q, 64) // what is no number is nothing
		}
		if quality <= most {
			continue
		}
		switch media {
		case sseType, "text/*":
			best, most = sse{filtered}, quality
		case ndjsonType, "application/*", "*/*":
			best, most = ndjson{}, quality
		}
	}
	if best == nil {
		return nil, eventstore.NewError(api.NotAcceptable, "A subscription is %s, %s, or a WebSocket.", sseType, ndjsonType)
	}
	return best, nil
}
