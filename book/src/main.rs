//! Makes the site of docs/: `quintet-book ROOT OUT`, which `cargo xtask book`
//! calls. It fails on links that lead nowhere, also to places within pages.

mod check;
mod links;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mdbook_driver::MDBook;
use mdbook_driver::book::{BookItem, Chapter};
use mdbook_driver::config::Config;

use crate::links::Links;

/// Pages of the repository outside of docs/ that pages link to: they are the
/// book's last part, below `repository/`.
const OUTSIDE: [(&str, &str); 9] = [
    ("README.md", "README"),
    ("CHANGELOG.md", "Changes"),
    ("ARCHITECTURE.md", "Architecture"),
    ("CONTRIBUTING.md", "Contributing"),
    ("SECURITY.md", "Weaknesses in security"),
    ("bench/results/README.md", "Measurements"),
    ("crates/host/WAITS.md", "Waits"),
    (
        "clients/python/quintet_jobqueue/README.md",
        "quintet_jobqueue for Python",
    ),
    (
        "clients/python/quintet_pinpriq/README.md",
        "quintet_pinpriq for Python",
    ),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("book: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(out), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: quintet-book ROOT OUT");
    };
    let pages = build(&root, &out)?;
    let dead = check::dead_links(&out)?;
    for link in &dead {
        eprintln!("book: {link}");
    }
    if !dead.is_empty() {
        bail!("{} links lead nowhere", dead.len());
    }
    println!("book: {pages} pages in {}", out.display());
    Ok(())
}

/// Writes the site of the repository at `root` to `out`, which is removed
/// first, and answers how many pages there are.
fn build(root: &Path, out: &Path) -> Result<usize> {
    let here = root.join("book");
    let mut config = Config::from_disk(here.join("book.toml"))?;
    // Beneath nothing but the target directory is anything written.
    config.build.build_dir = std::path::absolute(out).context("where the site goes")?;
    if out.exists() {
        std::fs::remove_dir_all(out).context("the site of before")?;
    }
    let mut book = MDBook::load_with_config(&here, config)?;
    book.book
        .items
        .push(BookItem::PartTitle("The project".to_owned()));
    for (file, name) in OUTSIDE {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let path = PathBuf::from("repository").join(file);
        let chapter = Chapter::new(name, text, path, Vec::new());
        book.book.items.push(BookItem::Chapter(chapter));
    }
    let mut links = Links::new(root);
    let mut pages = 0;
    book.book.for_each_chapter_mut(|chapter| {
        if let Some(path) = &chapter.path {
            chapter.content = links.rewritten(&chapter.content, path);
            pages += 1;
        }
    });
    book.build()?;
    for file in links.files() {
        let to = out.join("files").join(file);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(root.join(file), to).with_context(|| file.display().to_string())?;
    }
    Ok(pages)
}
