//! Gives the shared library the name that programs ask for at run time. Until version 1.0, each
//! minor version may change calls, so the name has both numbers.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (major, minor) = (variable("CARGO_PKG_VERSION_MAJOR"), variable("CARGO_PKG_VERSION_MINOR"));
    let name = match variable("CARGO_CFG_TARGET_OS").as_str() {
        "macos" => format!("-install_name,@rpath/libbrooklet.{major}.{minor}.dylib"),
        _ => format!("-soname,libbrooklet.so.{major}.{minor}"),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,{name}");
}
