//! Volumes as a user has them: in files and on block devices, by io_uring and by threads.

mod devices;
mod direct;
mod limit;
mod places;
mod queues;

use brooklet_io::{
    AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, SECTOR, Volume, read_exact_at, write_all_at,
};

fn filled(len: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> std::io::ErrorKind {
    result.unwrap_err().kind()
}
