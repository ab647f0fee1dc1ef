//! Imports, exports, copies, backups, and subscriptions.

pub mod catch_up;
pub mod copy;
pub mod export;
pub mod following;
pub mod import;
pub mod offload;
pub mod parts;
pub mod recall;
pub mod salvage;
pub mod subscribe;
pub mod succeed;
