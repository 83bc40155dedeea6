// Package strict reads JSON request bodies and frames, and takes nothing on
// trust: unknown, repeated and misspelt fields, wrong types, numbers out of
// range, bytes that are not UTF-8 and escapes that are no character are errors,
// which name the field.
//
// encoding/json is the reference for what is JSON (and bounds the nesting): Valid says
// the same (FuzzValid). But
// its decoder matches names in any case, lets the last of repeated fields win
// and replaces what is no character. The walk here runs over text that it has
// found valid, and hands out raw values as slices of that text, byte for byte.
//
// A null is the same as leaving the field out, except for raw values.
//
// Reading order: decode.go, value.go, scan.go, valid.go.
package strict
