//! What a store reports about itself.

pub mod activity;
pub mod info;
pub mod metrics;
