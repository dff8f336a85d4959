//! Rules for the pages of docs/.

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

/// The first example of a page begins in so many lines.
const EXAMPLE_LINES: usize = 25;

/// The breaches of a page that does not begin with its readers and an example.
pub(crate) fn beginning(name: &str, page: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let first = page.lines().skip(1).find(|line| !line.is_empty());
    let for_readers = first.is_some_and(|line| line.starts_with("For "));
    if !for_readers && name != "docs/index.md" {
        breaches.push(format!(
            "{name}: the first paragraph names no readers (\"For operators.\")"
        ));
    }
    let mut beginning = page.lines().take(EXAMPLE_LINES);
    if !beginning.any(|line| line.trim_start().starts_with("```")) {
        breaches.push(format!(
            "{name}: no example in the first {EXAMPLE_LINES} lines"
        ));
    }
    breaches
}

/// The test that pastes the sessions of pages into a shell.
pub(crate) const SESSIONS: &str = "crates/server/tests/operations/readme.rs";

/// The mark above a session that the test passes over, with the reason behind it.
const NOT_RUN: &str = "<!-- not run: ";

/// The sessions of the page `name` that no test runs, though nothing above them
/// says so: all of a page that `tests` do not include. What begins with a prompt
/// is a session, and so is what is said to be one (`console`), prompt or not.
pub(crate) fn never_run(name: &str, page: &str, tests: &str) -> Vec<String> {
    let included = tests.contains(&format!("include_str!(\"../../../../{name}\")"));
    let mut breaches = Vec::new();
    let (mut fenced, mut output) = (false, "");
    let mut lines = page.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let text = line.trim();
        if let Some(language) = text.strip_prefix("```") {
            fenced = !fenced;
            let prompt = lines
                .peek()
                .is_some_and(|(_, next)| next.trim_start().starts_with("$ "));
            let console = language == "console";
            let reason = output.strip_prefix(NOT_RUN);
            if fenced && (prompt || console) {
                match reason {
                    None if included && prompt => {}
                    None if included => {
                        breaches.push(format!("{name}:{}: no prompt, so it is not run", at + 1));
                    }
                    None => breaches.push(format!(
                        "{name}:{}: run by no test; {SESSIONS}, or \"{NOT_RUN}why -->\" above",
                        at + 1
                    )),
                    Some(reason) if reason.starts_with("-->") => {
                        breaches.push(format!("{name}:{}: not run, and why?", at + 1));
                    }
                    Some(_) => {}
                }
            }
        }
        if !text.is_empty() {
            output = text;
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::{beginning, never_run, unlisted};

    #[test]
    fn a_page_begins_with_its_readers_and_an_example() {
        let late = format!("# A\n\nFor all.\n{}```\n", "\n".repeat(21));
        for (name, page, count) in [
            ("docs/a.md", "# A\n\nFor all.\n\n   ```\n", 0),
            ("docs/a.md", "# A\n\nOf all.\n\n```\n", 1),
            ("docs/a.md", "# A\n\nOf all.\n", 2),
            ("docs/index.md", "# A\n\nOf all.\n\n```\n", 0),
            ("docs/a.md", &late, 0),
            ("docs/a.md", &late.replace("```", "\n```"), 1),
        ] {
            let found = beginning(name, page);
            assert_eq!(found.len(), count, "{page}: {found:?}");
        }
    }

    #[test]
    fn sessions_are_run_or_say_why_not() {
        let session = "text\n\n```\n$ ls\n```\n";
        let tests = "f(include_str!(\"../../../../docs/a.md\"))";
        assert!(never_run("docs/a.md", session, tests).is_empty());
        let found = never_run("docs/b.md", session, tests);
        assert!(
            found[0].starts_with("docs/b.md:3: run by no test"),
            "{found:?}"
        );
        for (fine, page) in [
            (true, "```\nls\n```\n"),
            (
                true,
                "<!-- not run: it takes a day -->\n\n```console\n$ ls\n```\n",
            ),
            (
                false,
                "<!-- not run: it takes a day -->\ntext\n```\n$ ls\n```\n",
            ),
            (false, "<!-- not run: -->\n```\n$ ls\n```\n"),
            (false, "```console\nls\n```\n"),
            (false, "   ```\n   $ ls\n   ```\n"),
            // Text behind a block is not in one.
            (true, "```\nls\n```\n$ ls\n"),
        ] {
            assert_eq!(
                never_run("docs/b.md", page, tests).is_empty(),
                fine,
                "{page}"
            );
        }
        assert_eq!(
            never_run("docs/a.md", "```console\nls\n```\n", tests).len(),
            1
        );
    }

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
