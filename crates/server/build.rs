//! Asks the linker for packed relative relocations (`DT_RELR`): the unpacked ones are 2 MB that a
//! start reads and an idle server keeps in memory. glibc reads them since 2.36; this machine's is
//! asked, as the program needs at least the glibc that it is linked with.

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = var("HOST").ok() == var("TARGET").ok();
    let is_glibc = var("CARGO_CFG_TARGET_ENV").is_ok_and(|it| it == "gnu");
    if is_native && is_glibc && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// As `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
