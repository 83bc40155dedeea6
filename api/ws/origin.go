package ws

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Origins says which pages of other hosts may read through a browser. Without
// any, only pages of the broker's own host may.
type Origins struct {
	patterns []*regexp.Regexp
}

// ParseOrigins reads patterns such as https://shop.example, http://localhost:*
// or https://*.example. In them * stands for any characters but /, and alone for
// every origin.
func ParseOrigins(patterns []string) (Origins, error) {
	var o Origins
	for _, p := range patterns {
		if err := checkOrigin(p); err != nil {
			return Origins{}, fmt.Errorf("origin %q: %w", p, err)
		}
		if p == "*" {
			p = "*://*"
		}
		text := strings.ReplaceAll(regexp.QuoteMeta(strings.ToLower(p)), `\*`, `[^/]*`)
		o.patterns = append(o.patterns, regexp.MustCompile(`\A`+text+`\z`))
	}
	return o, nil
}

func checkOrigin(p string) error {
	if p == "*" {
		return nil
	}
	scheme, host, found := strings.Cut(p, "://")
	switch {
	case !found || scheme == "" || host == "":
		return errors.New("must be scheme://host or scheme://host:port, with * for any characters, or * alone")
	case strings.ContainsAny(host, "/?#@") || strings.ContainsAny(p, " \t\r\n,"):
		return errors.New("must end with the host or the port")
	}
	return nil
}

// Allow says whether the caller may read. Programs may: they send no origin.
func (o Origins) Allow(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		// A browser leaves the origin out where the page is not to see the answer,
		// but the call alone may do something, such as taking a point over.
		site := r.Header.Get("Sec-Fetch-Site")
		return slices.Contains([]string{"", "none", "same-origin"}, site)
	}
	return sameHost(origin, r) || o.Match(origin)
}

// Match says whether a pattern allows the origin.
func (o Origins) Match(origin string) bool {
	return slices.ContainsFunc(o.patterns, func(p *regexp.Regexp) bool { return p.MatchString(strings.ToLower(origin)) })
}

func sameHost(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
