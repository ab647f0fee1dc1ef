//! What Redis clients say. Input: a byte that says which of three clients speaks, or that the world
//! goes on (3); a byte that says how many bytes it says, or what happens; those bytes; and so on.

#![no_main]

use brooklet_server::fuzzing::talk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| talk(data));
