//! What holds for the pages of docs/.

/// The pages among `files` that the table of contents does not list, or lists
/// twice. What it lists and is not there is a dead link.
pub(crate) fn unlisted<'a>(summary: &str, files: impl Iterator<Item = &'a str>) -> Vec<String> {
    let listed = |page: &str| summary.matches(&format!("]({page})")).count();
    files
        .filter_map(|file| file.strip_prefix("docs/"))
        .filter(|page| page.ends_with(".md") && *page != "SUMMARY.md")
        .filter_map(|page| match listed(page) {
            1 => None,
            0 => Some(format!("docs/{page} is not in docs/SUMMARY.md")),
            _ => Some(format!("docs/{page} is in docs/SUMMARY.md more than once")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::unlisted;

    #[test]
    fn every_page_is_listed_once() {
        let summary = "- [A](a.md)\n    - [B](b/b.md)\n- [C](c.md)\n- [C](c.md)\n";
        let files = ["docs/SUMMARY.md", "docs/a.md", "docs/a.png", "README.md"];
        assert!(unlisted(summary, files.into_iter()).is_empty());
        let files = ["docs/b.md", "docs/b/b.md", "docs/c.md"];
        assert_eq!(
            unlisted(summary, files.into_iter()),
            [
                "docs/b.md is not in docs/SUMMARY.md",
                "docs/c.md is in docs/SUMMARY.md more than once"
            ]
        );
    }
}
