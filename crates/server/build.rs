//! Packs the relocations of a program for this machine: a tenth of what an idle server has in
//! memory is their table, which is read once. glibc knows packed ones from 2.36 on; the program
//! that is published has them in any case (`cargo xtask package`).

use std::process::Command;

/// The first glibc that reads them.
const KNOWS: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).ok();
    let is_own =
        var("HOST") == var("TARGET") && var("CARGO_CFG_TARGET_ENV").as_deref() == Some("gnu");
    if is_own && glibc().is_some_and(|version| version >= KNOWS) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of glibc here.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
