//! Notes of a reader beside the writer of a store: the entries that a log lost between two moments.

use std::ops::Range;

/// The log lost the entries with these numbers at its beginning.
pub fn trimmed(Range { start, end }: Range<u64>) {
    eprintln!("note: entries {start} to {end} (exclusive) were trimmed");
}

/// The log lost entries at its end that were printed already.
pub fn cut(next: u64) {
    eprintln!("note: the log was truncated, or is another log; reading goes on at {next}");
}

/// The same, where the newest entries are printed first.
pub fn cut_below(end: u64) {
    eprintln!("note: the log was truncated, or is another log; reading goes on below {end}");
}
