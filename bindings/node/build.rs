//! An add-on links no Node: the linker of macOS must be asked to accept that.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    napi_build::setup();
}
