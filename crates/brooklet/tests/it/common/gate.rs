//! A volume whose flush hangs, so that no checkpoint ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use brooklet::io::{Layer, MemVolume, Persist, Volume};

/// Holds up the next flush, until it may go on.
#[derive(Clone, Debug)]
pub struct Gate(MemVolume, Arc<Mutex<Option<mpsc::Receiver<()>>>>, Arc<AtomicBool>);

impl Gate {
    pub fn new(seed: u64) -> Self {
        Self(MemVolume::new(seed), Arc::default(), Arc::default())
    }

    /// Returns the number of handles of this volume.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.1)
    }

    /// Closes the gate; dropping the result opens it.
    pub fn close(&self) -> mpsc::Sender<()> {
        let (open, closed) = mpsc::channel();
        self.2.store(false, Ordering::Relaxed);
        *self.1.lock().unwrap() = Some(closed);
        open
    }

    /// Returns whether a flush has reached the gate since it was closed.
    pub fn is_reached(&self) -> bool {
        self.2.load(Ordering::Relaxed)
    }
}

impl Layer for Gate {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn flush(&self) -> std::io::Result<()> {
        if let Some(gate) = self.1.lock().unwrap().take() {
            self.2.store(true, Ordering::Relaxed);
            let _ = gate.recv();
        }
        self.0.flush()
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> std::io::Result<usize> {
        self.0.write_at(offset, data, persist)
    }
}
