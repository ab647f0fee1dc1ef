//! Requests to stop: by Ctrl-C, or by a signal that ends a process unless it listens.
//!
//! At the first request, the work ends soon, and its place is as it was before. At the second
//! request, the process ends at once.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Kind};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Listens from now on.
///
/// # Errors
/// The system refuses, or the process listens already.
pub fn listen() -> Result<(), Failure> {
    let listening = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Kind::Interrupted as u8));
        }
        eprintln!(
            "\nbrooklet: stopping, and restoring the previous state; press Ctrl-C again to end at once"
        );
    });
    listening.map_err(|e| Failure::new(Kind::Io, format!("listening for Ctrl-C failed: {e}")))
}

/// Listens from now on, for work that leaves nothing to restore.
///
/// # Errors
/// The system refuses, or the process listens already.
pub fn listen_quietly() -> Result<(), Failure> {
    let listening = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Kind::Interrupted as u8));
        }
    });
    listening.map_err(|e| Failure::new(Kind::Io, format!("listening for Ctrl-C failed: {e}")))
}

/// Returns whether a stop was requested.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Returns `Break` if a stop was requested: for the progress functions of long calls.
pub fn go_on() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Fails if a stop was requested, for work whose completed part stays.
pub fn check_done() -> Result<(), Failure> {
    if asked() {
        return Err(Failure::new(Kind::Interrupted, "stopped on request; completed work stays"));
    }
    Ok(())
}

/// Fails if a stop was requested.
pub fn check() -> Result<(), Failure> {
    if asked() {
        return Err(Failure::new(Kind::Interrupted, "stopped on request; nothing is left behind"));
    }
    Ok(())
}
