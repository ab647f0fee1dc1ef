//! The C library of Brooklet: an embedded store for millions of small append-only logs.
//!
//! `include/brooklet.h` is the reference; a test makes it anew from this source and compares.
//!
//! # Rules that hold for all calls
//!
//! - A call that can fail returns a `brooklet_status`: positive values are errors. Its last
//!   argument receives the error, or NULL after success; the argument may be NULL. The caller frees
//!   the error.
//! - The caller frees each handle with the `_free` function of its type. Freeing NULL does nothing.
//!   A failed call stores NULL in the place of a new handle.
//! - Bytes that the caller passes are copied before the call returns. Bytes that a call returns are
//!   lent: they stay valid until the next call on the same iterator, or until it is freed.
//! - Many threads may use one store, one ticket or one queue at the same time. One thread at a time
//!   may use options, a commit or an iterator.
//! - No thread of the library calls the caller's code, unless the caller registered a callback.
//! - Times are nanoseconds. `UINT64_MAX` means without end.
//! - After `fork`, the child may only free its handles: every other call returns
//!   `BROOKLET_STOPPED`.

#![expect(non_camel_case_types, reason = "the names are those of C")]

mod arguments;
pub mod commit;
pub mod ends;
pub mod error;
pub mod group;
mod grouping;
pub mod info;
pub mod options;
pub mod packed;
pub mod queue;
pub mod read;
pub mod store;
pub mod tail;
pub mod ticket;
pub mod wait;
