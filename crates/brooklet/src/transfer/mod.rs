//! Data that enters or leaves a store as a whole: imports, exports, copies, parts of views,
//! offloading and recall, subscriptions, and stores that follow or continue a log.

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
