package strict

import (
	"encoding/binary"
	"math/bits"
)

// mostNested is how deep encoding/json lets values be nested.
const mostNested = 10_000

// Valid is json.Valid, some times as fast: every payload that is read passes it.
func Valid(data []byte) bool {
	n := validValue(data, space(data, 0), 0)
	return n > 0 && space(data, n) == len(data)
}

// The functions below answer where what begins at i ends, and -1 if it is not valid.

func validValue(data []byte, i, depth int) int {
	if i >= len(data) {
		return -1
	}
	switch c := data[i]; c {
	case '"':
		return validString(data, i)
	case '{':
		return validObject(data, i, depth+1)
	case '[':
		return validArray(data, i, depth+1)
	case 't':
		return validWord(data, i, "true")
	case 'f':
		return validWord(data, i, "false")
	case 'n':
		return validWord(data, i, "null")
	default:
		return validNumber(data, i)
	}
}

func validObject(data []byte, i, depth int) int {
	if depth > mostNested {
		return -1
	}
	if i = space(data, i+1); i < len(data) && data[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(data) || data[i] != '"' {
			return -1
		}
		if i = validString(data, i); i < 0 {
			return -1
		}
		if i = space(data, i); i >= len(data) || data[i] != ':' {
			return -1
		}
		if i = validValue(data, space(data, i+1), depth); i < 0 {
			return -1
		}
		i = space(data, i)
		switch {
		case i >= len(data):
			return -1
		case data[i] == '}':
			return i + 1
		case data[i] != ',':
			return -1
		}
		i = space(data, i+1)
	}
}

func validArray(data []byte, i, depth int) int {
	if depth > mostNested {
		return -1
	}
	if i = space(data, i+1); i < len(data) && data[i] == ']' {
		return i + 1
	}
	for {
		if i = validValue(data, i, depth); i < 0 {
			return -1
		}
		i = space(data, i)
		switch {
		case i >= len(data):
			return -1
		case data[i] == ']':
			return i + 1
		case data[i] != ',':
			return -1
		}
		i = space(data, i+1)
	}
}

func validString(data []byte, i int) int {
	for i++; ; {
		i = ordinary(data, i)
		switch {
		case i >= len(data):
			return -1
		case data[i] == '"':
			return i + 1
		case data[i] != '\\':
			return -1 // a control character
		}
		if i = validEscape(data, i); i < 0 {
			return -1
		}
	}
}

// ordinary passes what stands for itself in a string, eight bytes at a time.
func ordinary(data []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(data); i += 8 {
		word := binary.LittleEndian.Uint64(data[i:])
		quote, back := word^(ones*'"'), word^(ones*'\\')
		// The high bit of a byte that is less than what is taken from it, and of none
		// below the first such byte.
		found := ((word-ones*' ')&^word | (quote-ones)&^quote | (back-ones)&^back) & high
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(data) && data[i] >= ' ' && data[i] != '"' && data[i] != '\\' {
		i++
	}
	return i
}

func validEscape(data []byte, i int) int {
	if i+1 >= len(data) {
		return -1
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 > len(data) {
			return -1
		}
		for _, c := range data[i+2 : i+6] {
			if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
				return -1
			}
		}
		return i + 6
	default:
		return -1
	}
}

func validWord(data []byte, i int, word string) int {
	if i+len(word) > len(data) || string(data[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func validNumber(data []byte, i int) int {
	if i < len(data) && data[i] == '-' {
		i++
	}
	begin := i
	if i = digits(data, i); i == begin || (data[begin] == '0' && i > begin+1) {
		return -1
	}
	if i < len(data) && data[i] == '.' {
		begin = i + 1
		if i = digits(data, begin); i == begin {
			return -1
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		begin = i + 1
		if begin < len(data) && (data[begin] == '+' || data[begin] == '-') {
			begin++
		}
		if i = digits(data, begin); i == begin {
			return -1
		}
	}
	return i
}

func digits(data []byte, i int) int {
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// space passes white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r' || data[i] == '\n') {
		i++
	}
	return i
}
