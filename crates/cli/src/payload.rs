//! Whole payloads: from the command line, from files, or from the standard input.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::{Failure, Kind};

/// The name of the standard input, in place of a file or a payload.
const STDIN: &str = "-";
/// No entry of a store is longer, in bytes.
const LONGEST: u64 = 1 << 30;

/// Returns whether an argument is the standard input.
pub fn is_stdin(argument: &OsStr) -> bool {
    argument == STDIN
}

/// Returns an argument, or what it stands for.
pub fn argument(payload: &OsString) -> Result<Cow<'_, [u8]>, Failure> {
    match is_stdin(payload) {
        true => standard_input().map(Cow::Owned),
        false => Ok(Cow::Borrowed(payload.as_bytes())),
    }
}

/// Reads a whole file, or the standard input.
pub fn file(file: &Path) -> Result<Vec<u8>, Failure> {
    if is_stdin(file.as_os_str()) {
        return standard_input();
    }
    let name = file.display();
    let mut input = File::open(file).map_err(Failure::opening(file))?;
    whole(&mut input, &name.to_string(), LONGEST)
}

/// Reads the whole standard input.
pub fn standard_input() -> Result<Vec<u8>, Failure> {
    short_input(LONGEST)
}

/// Reads the whole standard input, which has `most` bytes at most.
pub fn short_input(most: u64) -> Result<Vec<u8>, Failure> {
    whole(&mut stdin().lock(), "the standard input", most)
}

fn whole(input: &mut dyn Read, name: &str, most: u64) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let read = input.take(most + 1).read_to_end(&mut content);
    read.map_err(Failure::io(format!("reading {name}")))?;
    if content.len() as u64 > most {
        let what = format!("{name} is longer than {most} bytes, the longest that is accepted");
        return Err(Failure::new(Kind::Usage, what));
    }
    Ok(content)
}
