package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

var (
	errHeadersShape  = errors.New("must be a JSON object of strings, numbers, booleans and nulls")
	errHeadersNUL    = errors.New("must not contain NUL")
	errHeadersText   = errors.New("must be valid UTF-8, without unpaired surrogates")
	errHeadersNumber = errors.New("has a number that is out of the range of a double")
	errHeadersTwice  = errors.New("has a name twice")
)

// checkHeaders accepts what jsonb stores without loss: one flat object, names
// unique, numbers in the range of a double. Empty means no headers.
func checkHeaders(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if !utf8.Valid(raw) {
		return errHeadersText
	}
	if !json.Valid(raw) {
		return errHeadersShape
	}
	s := headerScanner{rest: raw}
	return s.object()
}

// headerScanner walks over JSON that is known to be valid.
type headerScanner struct {
	rest  []byte
	names map[string]bool
}

// next skips white space and answers the byte that follows.
func (s *headerScanner) next() byte {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	return s.rest[0]
}

func (s *headerScanner) skip() { s.rest = s.rest[1:] }

func (s *headerScanner) object() error {
	if s.next() != '{' {
		return errHeadersShape
	}
	s.skip()
	for s.next() != '}' {
		if s.next() == ',' {
			s.skip()
		}
		if err := s.name(); err != nil {
			return err
		}
		s.next()
		s.skip() // the colon
		if err := s.value(); err != nil {
			return err
		}
	}
	return nil
}

func (s *headerScanner) name() error {
	s.next()
	token := s.token()
	if err := checkString(token); err != nil {
		return err
	}
	var name string
	if err := json.Unmarshal(token, &name); err != nil {
		return errHeadersShape
	}
	if s.names[name] {
		return errHeadersTwice
	}
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
	return nil
}

func (s *headerScanner) value() error {
	switch c := s.next(); {
	case c == '{' || c == '[':
		return errHeadersShape
	case c == '"':
		return checkString(s.token())
	case c == '-' || '0' <= c && c <= '9':
		return checkNumber(s.token())
	default:
		s.token()
		return nil
	}
}

// token takes one string, number or word.
func (s *headerScanner) token() []byte {
	end := 1
	if s.rest[0] == '"' {
		for s.rest[end] != '"' {
			if s.rest[end] == '\\' {
				end++
			}
			end++
		}
		end++
	} else {
		for end < len(s.rest) && bytes.IndexByte([]byte(",} \t\r\n"), s.rest[end]) < 0 {
			end++
		}
	}
	token := s.rest[:end]
	s.rest = s.rest[end:]
	return token
}

// checkString looks for the escapes that jsonb refuses.
func checkString(token []byte) error {
	for i := 0; i < len(token); i++ {
		if token[i] != '\\' {
			continue
		}
		i++
		if token[i] != 'u' {
			continue
		}
		unit := hex(token[i+1 : i+5])
		i += 4
		switch {
		case unit == 0:
			return errHeadersNUL
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return errHeadersText
		case unit >= 0xD800 && unit <= 0xDBFF:
			if i+6 >= len(token) || token[i+1] != '\\' || token[i+2] != 'u' {
				return errHeadersText
			}
			if low := hex(token[i+3 : i+7]); low < 0xDC00 || low > 0xDFFF {
				return errHeadersText
			}
			i += 6
		}
	}
	return nil
}

// hex reads four hexadecimal digits.
func hex(digits []byte) uint64 {
	unit, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		return 0 // cannot be in valid JSON; 0 is refused
	}
	return unit
}

// maxNumber bounds a number's length and its exponent: jsonb writes it out in full.
const maxNumber = 400

// checkNumber accepts what a double can hold, or nearly.
func checkNumber(token []byte) error {
	digits, exponent, _ := bytes.Cut(bytes.ToLower(token), []byte("e"))
	e := 0
	if len(exponent) > 0 {
		var err error
		if e, err = strconv.Atoi(string(exponent)); err != nil {
			return errHeadersNumber
		}
	}
	if len(digits) > maxNumber || e > maxNumber || e < -maxNumber {
		return errHeadersNumber
	}
	n, err := strconv.ParseFloat(string(token), 64)
	if err != nil || (n == 0 && bytes.ContainsAny(digits, "123456789")) {
		return errHeadersNumber
	}
	return nil
}
