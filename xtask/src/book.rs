//! The site of docs/: what makes it is a package of its own, book/, which is
//! built only here.

use std::path::Path;

use anyhow::Result;

use crate::{cargo_command, run, target};

/// Tests the package, and has it write the site to `book` in the target directory.
///
/// # Errors
/// If it cannot be built, or a page or a link is wrong; it says which.
pub(crate) fn build(root: &Path) -> Result<()> {
    let manifest = root.join("book/Cargo.toml");
    let builds = target(root).join("book-build");
    let cargo = |task: &str| {
        let mut command = cargo_command();
        command
            .args([task, "--quiet", "--locked", "--manifest-path"])
            .arg(&manifest)
            .arg("--target-dir")
            .arg(&builds)
            .current_dir(root);
        command
    };
    run(&mut cargo("test"))?;
    run(cargo("run")
        .arg("--")
        .arg(root)
        .arg(target(root).join("book")))
}
