//! Deliberate defects, planted to check that the tests would find real ones.
//!
//! Each defect is one call of [`bug`] at the place that it breaks. In an ordinary build `bug` is
//! always `false`, and the compiler knows that. Only a build with the feature `seeded-bugs` can
//! plant a defect, in one thread at a time. The feature is for this project's own tests.

#[cfg(feature = "seeded-bugs")]
mod planted {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
        static MET: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether this build can plant defects.
    pub const CAN_PLANT: bool = true;

    /// Plants a defect in this thread, or none.
    pub fn plant(name: Option<&'static str>) {
        PLANTED.set(name);
        MET.set(0);
    }

    /// Returns the number of times that the planted defect was met.
    pub fn met() -> u64 {
        MET.get()
    }

    /// Returns whether the defect `name` is planted.
    pub fn bug(name: &str) -> bool {
        let planted = PLANTED.get() == Some(name);
        MET.set(MET.get() + u64::from(planted));
        planted
    }
}

#[cfg(not(feature = "seeded-bugs"))]
mod planted {
    /// Whether this build can plant defects.
    pub const CAN_PLANT: bool = false;

    /// Does nothing in this build.
    pub const fn plant(_name: Option<&'static str>) {}

    /// Returns 0: this build has no planted defects.
    pub const fn met() -> u64 {
        0
    }

    /// Returns `false`: this build has no planted defects.
    #[inline(always)]
    pub const fn bug(_name: &str) -> bool {
        false
    }
}

pub use planted::{CAN_PLANT, bug, met, plant};
