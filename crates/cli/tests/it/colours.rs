//! Colours: where a terminal is, and where nobody declines them.

use crate::common;

use std::fs::File;
use std::io::Read;

use common::{Place, text};

/// Returns what the command writes to the terminal on its standard output and error, with these
/// variables set.
fn shown(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> String {
    let (mut person, program) = common::terminal();
    let mut command = place.command(args);
    command.env_remove("NO_COLOR").env_remove("CLICOLOR").env_remove("CLICOLOR_FORCE");
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command.stdout(program.try_clone().unwrap()).stderr(program);
    let mut child = command.spawn().unwrap();
    // Otherwise this process holds the terminal, too.
    drop(command);
    let shown = all(&mut person);
    child.wait().unwrap();
    shown
}

fn all(person: &mut File) -> String {
    let (mut shown, mut buf) = (Vec::new(), [0; 4096]);
    // Once nobody has the other end any more, reading fails.
    while let Ok(len @ 1..) = person.read(&mut buf) {
        shown.extend_from_slice(&buf[..len]);
    }
    String::from_utf8(shown).unwrap()
}

/// Whether a text changes colours or weights. A progress bar moves the cursor, which is no colour.
fn has_colours(text: &str) -> bool {
    let ends = |code: &str| code.chars().find(char::is_ascii_alphabetic) == Some('m');
    text.split('\x1b').skip(1).any(ends)
}

#[test]
fn terminals_get_colours_unless_they_are_declined() {
    let place = Place::new();
    place.ok(&["append", "STORE", "k", "x", "--ring-size", "1M"]);
    for (args, coloured) in [
        (&["read", "STORE", "none"][..], "\x1b[31m"),
        (&["check", "STORE"], "\x1b[32msound"),
        (&["--help"], "\x1b["),
    ] {
        let on_terminal = shown(&place, args, &[]);
        assert!(on_terminal.contains(coloured), "{args:?}: {on_terminal:?}");
        for declined in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            // Machines that test set CI, and some libraries then show colours anyway.
            let plain = shown(&place, args, &[declined, ("CI", "true")]);
            assert!(!has_colours(&plain) && !plain.is_empty(), "{args:?} {declined:?}: {plain:?}");
        }
        let piped = place.run(args);
        assert!(!text(&piped.stdout).contains('\x1b') && !text(&piped.stderr).contains('\x1b'), "{args:?}");
    }
    let json = shown(&place, &["read", "STORE", "none", "--json"], &[]);
    assert!(json.starts_with("{\"error\":"), "{json:?}");
}

#[test]
fn the_log_has_colours_unless_they_are_declined() {
    let place = Place::new();
    place.ok(&["append", "STORE", "k", "x", "--ring-size", "1M"]);
    let debug = ("RUST_LOG", "debug");
    let read = ["append", "STORE", "k", "y"];
    let on_terminal = shown(&place, &read, &[debug]);
    assert!(has_colours(&on_terminal), "{on_terminal:?}");
    let plain = shown(&place, &read, &[debug, ("NO_COLOR", "1")]);
    assert!(plain.lines().count() > 1 && !has_colours(&plain), "{plain:?}");
}
