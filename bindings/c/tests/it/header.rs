//! The header that callers include is the one that the source makes.

use std::path::Path;

#[test]
fn the_header_is_made_from_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("the configuration is well-formed");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_crate(here)
        .with_config(config)
        .generate()
        .expect("the source is well-formed")
        .write(&mut made);
    let (header, made) =
        (here.join("include/brooklet.h"), String::from_utf8(made).expect("the source is UTF-8"));
    if std::env::var_os("BROOKLET_WRITE_HEADER").is_some() {
        std::fs::write(&header, &made).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&header).expect("the header is there");
    assert!(kept == made, "include/brooklet.h is out of date: run this test with BROOKLET_WRITE_HEADER=1");
}
