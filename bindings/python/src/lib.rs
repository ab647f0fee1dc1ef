//! The Python library of Brooklet: the native module `brooklet._brooklet`.
//!
//! The Python part, in `python/brooklet`, exports its classes, and defines the exceptions, the
//! named tuples and the classes for `asyncio`.
//!
//! # Rules that hold for all calls
//!
//! - A call that may block releases the interpreter's lock. Bytes of the caller that it uses
//!   meanwhile are immutable and held, or are a copy.
//! - No lock of this library is held while a call waits for the interpreter's lock.
//! - No thread of the store runs Python code, but for the callbacks of `Ticket.on_done`.

mod argument;
mod callback;
mod commit;
mod error;
mod pending;
mod port;
mod reach;
mod read;
mod result;
mod store;
mod tail;
mod ticket;
mod wait;

use pyo3::prelude::*;

/// The native part of the package `brooklet`.
#[pymodule]
mod _brooklet {
    #[pymodule_export]
    use crate::callback::end_callbacks;
    #[pymodule_export]
    use crate::commit::Commit;
    #[pymodule_export]
    use crate::port::Port;
    #[pymodule_export]
    use crate::reach::Reach;
    #[pymodule_export]
    use crate::read::{Entries, Logs};
    #[pymodule_export]
    use crate::store::{Store, open};
    #[pymodule_export]
    use crate::tail::{Tail, TailStream};
    #[pymodule_export]
    use crate::ticket::Ticket;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
