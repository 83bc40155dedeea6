package strict

import "bytes"

// scanner walks over JSON that is known to be valid, so it checks nothing.
type scanner struct {
	rest []byte
}

// next skips white space and shows the byte that follows.
func (s *scanner) next() byte {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	return s.rest[0]
}

// skip passes one byte of punctuation.
func (s *scanner) skip() {
	s.next()
	s.rest = s.rest[1:]
}

// more enters the next member of an object or array, and passes its end.
func (s *scanner) more(end byte) bool {
	switch s.next() {
	case end:
		s.skip()
		return false
	case ',':
		s.skip()
	}
	return true
}

// value takes the whole value that follows.
func (s *scanner) value() []byte {
	s.next()
	n := length(s.rest)
	value := s.rest[:n:n]
	s.rest = s.rest[n:]
	return value
}

// length is that of the value at the start, which may be nested: no recursion.
func length(data []byte) int {
	depth := 0
	for i := 0; i < len(data); {
		switch data[i] {
		case '"':
			i += quoted(data[i:])
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			i += word(data[i:])
		}
		if depth == 0 {
			return i
		}
	}
	return len(data)
}

// quoted is the length of a string with its quotes.
func quoted(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// word is the length of a number or of true, false, null.
func word(data []byte) int {
	if n := bytes.IndexAny(data, ",]} :\t\r\n"); n >= 0 {
		return n
	}
	return len(data)
}
