//! Words of an old dialect are refused in pages and doc comments, where the field has a word.

use crate::prose::{is_page, without};

/// The words, and the words instead; a test of the command line reads them too.
const WORDS: &str = include_str!("../words.txt");

/// The breaches in these files, each with its line and the words instead.
pub(crate) fn breaches(files: &[(String, String)]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (file, text) in files {
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            let Some(line) = read(file, line) else {
                continue;
            };
            let fence = line.starts_with("```");
            fenced ^= fence;
            if fence || fenced {
                continue;
            }
            for (old, instead) in found(line) {
                breaches.push(format!("{file}:{}: \"{old}\": write {instead}", at + 1));
            }
        }
    }
    breaches
}

/// The part of a line that is checked: a line of a page, or the text of a doc comment.
fn read<'a>(file: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    if file.ends_with(".rs") {
        let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
        return Some(text.trim_start());
    }
    (file == "CHANGELOG.md" || is_page(file)).then_some(line)
}

/// The words of the list in a text, outside code spans, each with the words instead.
fn found(text: &str) -> Vec<(&'static str, &'static str)> {
    let text = without(text, "`", "`", " x ").to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", words.join(" "));
    let rows = WORDS.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split_once(": "));
    let phrases = rows.flat_map(|(old, instead)| old.split(", ").map(move |old| (old, instead)));
    phrases
        .filter(|(old, _)| text.contains(&format!(" {old} ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::breaches;

    #[test]
    fn words_of_the_dialect_are_found_outside_code() {
        for (file, text, wanted) in [
            (
                "docs/a.md",
                "A Voice.",
                "docs/a.md:1: \"voice\": write protocol",
            ),
            (
                "CHANGELOG.md",
                "\n- (heirs)",
                "CHANGELOG.md:2: \"heirs\": write designated successor",
            ),
            (
                "a.rs",
                "    /// It is  told so.",
                "a.rs:1: \"is told\": write get, learn, be notified",
            ),
            ("a.rs", "//! Takers", "a.rs:1: \"takers\": write consumer"),
        ] {
            let found = breaches(&[(file.to_owned(), text.to_owned())]);
            assert_eq!(found, [wanted], "{text}");
        }
        for (file, text) in [
            ("docs/a.md", "A third-party `voice`, choices."),
            ("docs/a.md", "```\nvoice\n```"),
            ("docs/a.lua", "voice"),
            ("a.rs", "// voice\nlet voice = 1;"),
            ("a.rs", "/// ```text\n/// splice\n/// ```"),
        ] {
            let found = breaches(&[(file.to_owned(), text.to_owned())]);
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }
}
