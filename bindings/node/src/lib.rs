//! The Node library of Brooklet: the native module `brooklet.node`.
//!
//! The part in JavaScript, in `lib`, has the public classes. It checks arguments, turns keys into
//! bytes, and makes promises and errors of the answers of this part.
//!
//! # Rules that hold for all calls
//!
//! - No call blocks the thread of JavaScript. Writes, and tails that wait for new entries, are
//!   futures that a `port` polls. All else runs on the thread pool of Node (`call`).
//! - Bytes of the caller are copied before a call returns.
//! - An answer is a pair: a failure or null, and a value or null.

mod call;
mod commit;
mod failure;
mod info;
mod number;
mod port;
mod reach;
mod read;
mod rows;
mod store;
mod tail;
