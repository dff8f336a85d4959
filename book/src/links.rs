//! Links as they are in the repository become links as they are in the book.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Where the book has the repository's pages that are not in docs/.
const REPOSITORY: &str = "repository";

/// Rewrites links, and remembers which files they lead to.
pub(crate) struct Links<'a> {
    root: &'a Path,
    files: BTreeSet<PathBuf>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Self {
            root,
            files: BTreeSet::new(),
        }
    }

    /// Files of the repository that are neither in docs/ nor pages, and that
    /// links lead to: the book has them below `files/`.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The text of the page that the book has at `page`, with its links as
    /// they are there. Nothing between fences is looked at.
    pub(crate) fn rewritten(&mut self, text: &str, page: &Path) -> String {
        let mut fenced = false;
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if fence || fenced {
                out.push_str(line);
            } else {
                self.line(line, page, &mut out);
            }
        }
        out
    }

    fn line(&mut self, line: &str, page: &Path, out: &mut String) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            let (before, behind) = rest.split_at(at + 2);
            out.push_str(before);
            let Some(end) = behind.find(')') else {
                rest = behind;
                break;
            };
            out.push_str(&self.target(&behind[..end], page));
            rest = &behind[end..];
        }
        out.push_str(rest);
    }

    /// Where a link leads in the book. What is not there stays as it is, and
    /// is found by the check of links.
    fn target(&mut self, target: &str, page: &Path) -> String {
        if target.is_empty() || target.starts_with('#') || target.contains(':') {
            return target.to_owned();
        }
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, format!("#{anchor}")),
            None => (target, String::new()),
        };
        let from = source(page);
        let folder = from.parent().unwrap_or(Path::new(""));
        let Some(file) = plain(&folder.join(path)) else {
            return target.to_owned();
        };
        let in_book = match file.strip_prefix("docs") {
            Ok(inner) if self.root.join(&file).is_dir() => inner.join("README.md"),
            Ok(inner) => inner.to_owned(),
            Err(_) if path.ends_with(".md") => Path::new(REPOSITORY).join(&file),
            Err(_) if self.root.join(&file).is_file() => {
                self.files.insert(file.clone());
                Path::new("files").join(&file)
            }
            Err(_) => return target.to_owned(),
        };
        let up = page.components().count().saturating_sub(1);
        format!("{}{}{anchor}", "../".repeat(up), in_book.display())
    }
}

/// The file of the repository that is the book's page `page`.
fn source(page: &Path) -> PathBuf {
    match page.strip_prefix(REPOSITORY) {
        Ok(file) => file.to_owned(),
        Err(_) => Path::new("docs").join(page),
    }
}

/// The path without `..` and `.`; None if it leads out of the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Links;

    /// The repository itself: what is linked to is there.
    fn rewritten(text: &str, page: &str) -> (String, Vec<PathBuf>) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut links = Links::new(root);
        let text = links.rewritten(text, Path::new(page));
        (text, links.files().map(Path::to_owned).collect())
    }

    #[test]
    fn links_lead_to_the_same_place_in_the_book() {
        for (page, from, to) in [
            ("api.md", "[a](tls.md#b) [c](#d)", "[a](tls.md#b) [c](#d)"),
            ("clients/go.md", "[a](../tls.md)", "[a](../tls.md)"),
            (
                "clients/go.md",
                "![a](../console/queue.png)",
                "![a](../console/queue.png)",
            ),
            ("api.md", "[a](migration)", "[a](migration/README.md)"),
            (
                "api.md",
                "[a](../README.md#b)",
                "[a](repository/README.md#b)",
            ),
            (
                "clients/go.md",
                "[a](../../README.md)",
                "[a](../repository/README.md)",
            ),
            (
                "repository/README.md",
                "[a](docs/api.md#b)",
                "[a](../api.md#b)",
            ),
            (
                "repository/clients/python/quintet_pinpriq/README.md",
                "[a](../../../docs/protocols/pinpriq.md)",
                "[a](../../../../protocols/pinpriq.md)",
            ),
            (
                "api.md",
                "[a](https://example.org/x.md)",
                "[a](https://example.org/x.md)",
            ),
            (
                "api.md",
                "```\n[a](../README.md)\n```\n",
                "```\n[a](../README.md)\n```\n",
            ),
            ("api.md", "x](", "x]("),
        ] {
            assert_eq!(rewritten(from, page).0, to, "{page}: {from}");
        }
    }

    #[test]
    fn files_that_are_no_pages_come_along() {
        let (text, files) = rewritten("[a](../ops/alerts.yml)", "operations.md");
        assert_eq!(text, "[a](files/ops/alerts.yml)");
        assert_eq!(files, [Path::new("ops/alerts.yml")]);
        // Neither what is not there nor what is outside of the repository.
        for link in ["[a](../ops/none.yml)", "[a](../../etc/passwd)"] {
            let (text, files) = rewritten(link, "operations.md");
            assert_eq!((text.as_str(), files), (link, Vec::new()));
        }
    }
}
