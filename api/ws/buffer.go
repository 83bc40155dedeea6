package ws

import "sync"

// buffers are for frames while they are written: an idle session holds none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) } //nolint:forcetypeassert // nothing else is put

// giveBuffer leaves large ones to the garbage collector.
func giveBuffer(b *[]byte) {
	if cap(*b) <= 2*maxFrame {
		buffers.Put(b)
	}
}
