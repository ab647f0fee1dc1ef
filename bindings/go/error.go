package brooklet

// #include "shim.h"
import "C"

import "errors"

// The kinds of errors. Use errors.Is to ask for one.
var (
	// ErrInvalid means that the call is wrong: change it.
	ErrInvalid = errors.New("invalid call")
	// ErrNotFound means that the log or the range does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that another commit was first: read the log again and retry.
	ErrConflict = errors.New("conflict")
	// ErrCancelled means that the call was cancelled. A context that ends returns its own error.
	ErrCancelled = errors.New("cancelled")
	// ErrCannotOpen means that the store cannot be opened with these arguments.
	ErrCannotOpen = errors.New("cannot open")
	// ErrDamaged means that data is damaged: restore it.
	ErrDamaged = errors.New("damaged")
	// ErrFull means that there is no room: free some room and retry.
	ErrFull = errors.New("full")
	// ErrBusy means that the call would have to wait: retry later.
	ErrBusy = errors.New("busy")
	// ErrStopped means that the store accepts no writes any more, or is closed: open it again.
	ErrStopped = errors.New("stopped")
	// ErrIO means that the operating system refused an operation.
	ErrIO = errors.New("input or output failed")
	// ErrInternal means that the library has a fault: report it.
	ErrInternal = errors.New("fault of the library")
)

var kinds = map[C.brooklet_status]error{
	C.BROOKLET_INVALID:     ErrInvalid,
	C.BROOKLET_NOT_FOUND:   ErrNotFound,
	C.BROOKLET_CONFLICT:    ErrConflict,
	C.BROOKLET_CANCELLED:   ErrCancelled,
	C.BROOKLET_CANNOT_OPEN: ErrCannotOpen,
	C.BROOKLET_DAMAGED:     ErrDamaged,
	C.BROOKLET_FULL:        ErrFull,
	C.BROOKLET_BUSY:        ErrBusy,
	C.BROOKLET_STOPPED:     ErrStopped,
	C.BROOKLET_IO:          ErrIO,
}

// Error is the reason why a call failed.
type Error struct {
	// Kind is one of the sentinel errors of this package.
	Kind error
	// Message has the failure, its place and the remedy.
	Message string
	// Next is the number that the log's next entry will get, if HasNext. So a caller that lost
	// against another writer need not ask for the bounds.
	Next uint64
	// HasNext reports whether the store reported the end of the log.
	HasNext bool
	// First is the number of the first entry that the log still has, if HasFirst.
	First uint64
	// HasFirst reports whether the store reported the first entry of the log.
	HasFirst bool
}

func (e *Error) Error() string { return "brooklet: " + e.Message }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// failed returns the error of a C call, and frees it there; nil for a status that is no error.
func failed(status C.brooklet_status, told *C.brooklet_error) error {
	if told == nil {
		return nil
	}
	defer C.brooklet_error_free(told)
	kind, known := kinds[status]
	if !known {
		kind = ErrInternal
	}
	var first, next C.uint64_t
	hasFirst, hasNext := C.brooklet_error_first(told, &first), C.brooklet_error_next(told, &next)
	return &Error{
		Kind:     kind,
		Message:  C.GoString(C.brooklet_error_message(told)),
		Next:     uint64(next),
		HasNext:  bool(hasNext),
		First:    uint64(first),
		HasFirst: bool(hasFirst),
	}
}

func invalid(message string) error { return &Error{Kind: ErrInvalid, Message: message} }

func closed() error {
	return &Error{Kind: ErrStopped, Message: "the store is closed: open it again"}
}
