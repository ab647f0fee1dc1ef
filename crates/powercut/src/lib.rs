//! Real power cuts for Brooklet.
//!
//! The disk model ([`brooklet::io::Disk`]) is served to the kernel as a file ([`fuse`]) or to a
//! virtual machine as a block device ([`nbd`]). A process that writes to a store on it ([`victim`])
//! prints what was acknowledged; the power is cut at a random moment; what the model then holds is
//! served again, recovered, and held against those lines ([`oracle`]). `cuts` is the loop, `stages`
//! and `vm` are the kinds of disk, `host` is what the operating system lends.
//!
//! Besides, `full` fills small file systems to the last byte under a store.

#![expect(clippy::disallowed_methods, reason = "a harness drives real time, threads and processes")]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod counts;
#[cfg(target_os = "linux")]
pub mod cuts;
pub mod drive;
#[cfg(target_os = "linux")]
pub mod full;
#[cfg(target_os = "linux")]
pub mod fuse;
#[cfg(target_os = "linux")]
pub mod host;
pub mod nbd;
pub mod oracle;
#[cfg(target_os = "linux")]
pub mod stages;
pub mod story;
pub mod victim;
#[cfg(target_os = "linux")]
pub mod vm;
