//! The reports of a store about itself.

pub mod activity;
pub mod info;
pub mod metrics;
