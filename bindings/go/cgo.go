package brooklet

// #cgo CFLAGS: -I${SRCDIR}/../c/include
// #cgo linux LDFLAGS: -Wl,-Bstatic -lbrooklet -Wl,-Bdynamic -lpthread -ldl -lm
// #cgo darwin LDFLAGS: -lbrooklet
// #cgo noescape shim_append
// #cgo nocallback shim_append
// #cgo noescape shim_commit
// #cgo nocallback shim_commit
// #cgo noescape shim_append_wait
// #cgo nocallback shim_append_wait
// #cgo noescape shim_commit_wait
// #cgo nocallback shim_commit_wait
// #cgo noescape shim_read
// #cgo nocallback shim_read
// #cgo noescape shim_entries
// #cgo nocallback shim_entries
// #cgo noescape shim_logs
// #cgo nocallback shim_logs
// #cgo noescape shim_tail
// #cgo nocallback shim_tail
// #cgo noescape shim_bounds_of
// #cgo nocallback shim_bounds_of
// #cgo noescape shim_request
// #cgo nocallback shim_request
// #cgo noescape brooklet_queue_take
// #cgo nocallback brooklet_queue_take
// #include "shim.h"
import "C"

import "unsafe"

// End is the number behind the last entry of each log.
const End uint64 = 1<<64 - 1

// Version returns the version of the C library, such as "0.1.0".
func Version() string { return C.GoString(C.brooklet_version()) }

func textOf(text string) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.StringData(text)), C.size_t(len(text))
}

func bytesOf(bytes []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.SliceData(bytes)), C.size_t(len(bytes))
}
