//! Real power cuts for Brooklet.
//!
//! The disk model ([`brooklet::io::Disk`]) is served to the kernel as a file ([`fuse`]) or to a
//! virtual machine as a block device ([`nbd`]). A process that writes to a store on it ([`victim`])
//! prints its acknowledgements. The power is cut at a random moment. The remaining contents of the
//! model are served again, recovered, and compared with those lines ([`oracle`]). `cuts` is the
//! loop, `stages` and `vm` are the kinds of disk, `host` is the interface to the operating system.
//!
//! In addition, `full` fills small file systems to the last byte below a store.

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
