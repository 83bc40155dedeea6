package commands

import (
	"fmt"

	"leat/eventstore"
)

// faults collects what is wrong with a request, item by item.
type faults struct {
	list []eventstore.Error
}

// add notes one fault; index is -1 when it is about no item.
func (f *faults) add(code eventstore.Code, index int, field, format string, args ...any) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, eventstore.Error{
			Code: code, Index: index, Field: field, Message: fmt.Sprintf(format, args...),
		})
	}
}

// invalid notes a value out of its range.
func (f *faults) invalid(index int, field, format string, args ...any) {
	f.add(eventstore.InvalidField, index, field, format, args...)
}

// err is nil, or one error that lists all faults.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	first := f.list[0]
	if len(f.list) > 1 {
		first.Errors = f.list
	}
	return &first
}

// full reports whether further faults would not be listed.
func (f *faults) full() bool { return len(f.list) >= maxFaults }
