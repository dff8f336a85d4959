//! The style of doc comments and of pages, as far as it can be counted. `xtask/prose.txt` has the
//! numbers that are still too high; they may only fall.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The file of the numbers: `comments PERCENT`, then `PAGE MEAN LONG PARAGRAPHS` for each page that
/// breaks a rule.
const NUMBERS: &str = "xtask/prose.txt";
/// Doc comments of 100 that may open without their subject; `comments` in the file is above it.
const COMMENTS_MAX: usize = 1;
/// The mean length of a page's sentences stays below this number of words.
const MEAN_BELOW: usize = 18;
const SENTENCE_WORDS_MAX: usize = 40;
const PARAGRAPH_WORDS_MAX: usize = 90;
/// Files with such openings that a breach names.
const WORST: usize = 10;
/// A paragraph of a comment breaks a line only where the next word passes this column, or later.
const COLUMNS: usize = 72;

/// Pages with rules for their sentences; `CHANGELOG.md` is a list.
pub(crate) fn is_page(file: &str) -> bool {
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "bench/results/README.md",
        "crates/host/WAITS.md",
    ];
    others.contains(&file) || file.starts_with("docs/") && file.ends_with(".md")
}

/// The counts of a page: the mean sentence in words, sentences and paragraphs that are too long.
type Page = [usize; 3];

const FINE: Page = [MEAN_BELOW - 1, 0, 0];

fn page(text: &str) -> Page {
    let (mut words, mut sentences, mut long, mut paragraphs) = (0, 0, 0, 0);
    for block in blocks(text) {
        let lengths: Vec<usize> = self::sentences(&block)
            .map(|sentence| sentence.split_whitespace().filter(is_word).count())
            .filter(|words| *words > 0)
            .collect();
        let all: usize = lengths.iter().sum();
        words += all;
        sentences += lengths.len();
        let over = lengths.iter().filter(|words| **words > SENTENCE_WORDS_MAX);
        long += over.count();
        paragraphs += usize::from(all > PARAGRAPH_WORDS_MAX);
    }
    [words / sentences.max(1), long, paragraphs]
}

/// `choose` between each two numbers.
fn each(one: Page, other: Page, choose: fn(usize, usize) -> usize) -> Page {
    std::array::from_fn(|at| choose(one[at], other[at]))
}

fn is_word(word: &&str) -> bool {
    word.contains(|c: char| c.is_alphanumeric() || c == '_')
}

/// Paragraphs and items of lists, without code, tables, headings and HTML comments.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut fenced = false;
    for line in without(text, "<!--", "-->", "").lines() {
        let line = line.trim();
        let fence = line.starts_with("```");
        fenced ^= fence;
        let item = item(line);
        if fence || fenced || line.is_empty() || line.starts_with(['|', '#']) || item.is_some() {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut()
            && !(fence || fenced || line.starts_with(['|', '#']))
        {
            block.push_str(item.unwrap_or(line));
            block.push(' ');
        }
    }
    blocks
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.len() < line.len();
    let behind = line.strip_prefix("- ").or(line.strip_prefix("* "));
    behind.or(number.strip_prefix(". ").filter(|_| numbered))
}

/// `text` with `put` for all that is between `open` and `close`, and for these.
pub(crate) fn without(text: &str, open: &str, close: &str, put: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(open) {
        let Some((_, behind)) = behind.split_once(close) else {
            break;
        };
        kept += before;
        kept += put;
        rest = behind;
    }
    kept + rest
}

/// The sentences of a block: each ends with a stop or a colon, and the next one does not begin with
/// a small letter. A code span is one word, and the target of a link none.
fn sentences(block: &str) -> impl Iterator<Item = String> {
    let text = without(&without(block, "`", "`", "x"), "](", ")", "]");
    let mut sentences = vec![String::new()];
    let mut ended = false;
    for word in text.split_whitespace() {
        if ended && !word.starts_with(|c: char| c.is_ascii_lowercase()) {
            sentences.push(String::new());
        }
        if let Some(sentence) = sentences.last_mut() {
            sentence.push_str(word);
            sentence.push(' ');
        }
        ended = word
            .trim_end_matches(['"', '\'', ')', ']'])
            .ends_with(['.', '!', '?', ':']);
    }
    sentences.into_iter()
}

/// A doc comment: its lines with their numbers, the columns of each, and its text.
type Comment<'a> = Vec<(usize, usize, &'a str)>;

fn comments(text: &str) -> Vec<Comment<'_>> {
    let mut comments: Vec<Comment<'_>> = Vec::new();
    let mut before = None;
    for (at, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let kind = ["///", "//!"]
            .into_iter()
            .find(|kind| code.starts_with(kind) && !code.starts_with("////"));
        let begins = kind.map(|kind| (kind, line.len() - code.len()));
        if begins.is_some() && begins != before {
            comments.push(Vec::new());
        }
        before = begins;
        if let (Some(kind), Some(comment)) = (kind, comments.last_mut()) {
            let text = code.trim_start_matches(kind).trim();
            comment.push((at + 1, line.chars().count(), text));
        }
    }
    comments
}

/// True if a comment opens with a relative clause instead of its subject.
fn opens_without_subject(comment: &Comment<'_>) -> bool {
    let text = comment.first().map_or("", |(_, _, text)| text);
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let third = words.next().unwrap_or("");
    let relative = |word| ["that", "which", "who", "whom", "whose"].contains(&word);
    match first {
        "What" | "Whatever" | "Who" | "Whoever" | "Whom" | "Whose" | "Whichever" => true,
        "That" | "Those" | "All" | "One" | "He" | "They" => relative(second),
        "Anything" | "Everything" | "Nothing" | "Something" => relative(second),
        "The" => ["one", "ones"].contains(&second) && relative(third),
        "How" | "Where" | "When" | "Why" => {
            (second, third) == ("it", "is") && text.contains(" that ")
        }
        _ => false,
    }
}

/// The lines of a comment that begin anew although the line above has room: a second comment on
/// the same item, or a paragraph without an empty line before it.
fn begins_anew<'a>(comment: &'a Comment<'a>) -> impl Iterator<Item = usize> + 'a {
    let mut fenced = false;
    comment.windows(2).filter_map(move |two| {
        let [(_, columns, above), (line, _, text)] = two else {
            return None;
        };
        fenced ^= above.starts_with("```");
        let special = |text: &str| text.is_empty() || text.starts_with(['|', '#', '>', '-', '*']);
        let first = text.split(' ').next().unwrap_or_default();
        let anew = text.starts_with(|c: char| c.is_uppercase() || c == '`');
        let prose =
            !(fenced || special(above) || above.starts_with("```") || text.starts_with("```"));
        (prose && anew && columns + 1 + first.chars().count() <= COLUMNS).then_some(*line)
    })
}

/// The breaches of the rules in these files, each named from the root.
///
/// # Errors
/// [`NUMBERS`] cannot be read.
pub(crate) fn breaches(root: &Path, files: &[(String, String)]) -> Result<Vec<String>> {
    let numbers = std::fs::read_to_string(root.join(NUMBERS)).context(NUMBERS)?;
    Ok(against(&numbers, files).0)
}

/// Lowers the numbers to what they are now.
///
/// # Errors
/// [`NUMBERS`] cannot be read or written.
pub(crate) fn lower(root: &Path, files: &[(String, String)]) -> Result<()> {
    let numbers = std::fs::read_to_string(root.join(NUMBERS)).context(NUMBERS)?;
    std::fs::write(root.join(NUMBERS), against(&numbers, files).1).context(NUMBERS)
}

/// The breaches, and `numbers` as they should be.
fn against(numbers: &str, files: &[(String, String)]) -> (Vec<String>, String) {
    let mut rows: Vec<(&str, Vec<usize>)> = Vec::new();
    for line in numbers.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        rows.push((name, words.filter_map(|word| word.parse().ok()).collect()));
    }
    let row = |name: &str| rows.iter().find(|(row, _)| *row == name);
    let mut breaches = Vec::new();
    let mut lowered = String::new();

    let (mut all, mut without_subject) = (0, Vec::new());
    for (file, text) in files.iter().filter(|(file, _)| file.ends_with(".rs")) {
        let comments = comments(text);
        all += comments.len();
        let found = comments
            .iter()
            .filter(|comment| opens_without_subject(comment));
        without_subject.push((found.count(), file));
        for line in comments.iter().flat_map(begins_anew) {
            breaches.push(format!(
                "{file}:{line}: a second comment on one item, or a paragraph without an empty line above"
            ));
        }
    }
    let sum: usize = without_subject.iter().map(|(count, _)| count).sum();
    let percent = (sum * 100).div_ceil(all.max(1));
    let listed = row("comments").and_then(|(_, numbers)| numbers.first());
    let limit = listed.map_or(COMMENTS_MAX, |limit| *limit);
    if percent > limit {
        without_subject.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let worst = without_subject.iter().take(WORST);
        let worst: Vec<String> = worst.map(|(n, file)| format!("{n} in {file}")).collect();
        breaches.push(format!(
            "{sum} of {all} doc comments open with What, Who or a relative clause, over {limit} of 100: {}",
            worst.join(", ")
        ));
    }
    let mut stale = listed.is_some() && percent < limit;
    if listed.is_some() && percent.min(limit) > COMMENTS_MAX {
        writeln!(lowered, "comments {}", percent.min(limit)).ok();
    }
    for (file, text) in files.iter().filter(|(file, _)| is_page(file)) {
        let now = page(text);
        let listed = row(file).and_then(|(_, numbers)| Page::try_from(numbers.as_slice()).ok());
        let most = each(listed.unwrap_or(FINE), FINE, usize::max);
        if each(now, most, usize::max) != most {
            let [mean, long, paragraphs] = now;
            breaches.push(format!(
                "{file}: the mean sentence has {mean} words (at most {}), {long} sentences have over {SENTENCE_WORDS_MAX} ({}), {paragraphs} paragraphs over {PARAGRAPH_WORDS_MAX} ({})",
                most[0], most[1], most[2]
            ));
        }
        let least = each(each(now, FINE, usize::max), most, usize::min);
        stale |= row(file).is_some() && least != most;
        if least != FINE {
            let [mean, long, paragraphs] = least;
            writeln!(lowered, "{file} {mean} {long} {paragraphs}").ok();
        }
    }
    if stale || lowered.lines().count() != numbers.lines().count() {
        breaches.push(format!(
            "numbers in {NUMBERS} have fallen: cargo xtask tidy --lower"
        ));
    }
    (breaches, lowered)
}

#[cfg(test)]
mod tests {
    use super::{against, page};

    fn breaches(numbers: &str, files: &[(&str, &str)]) -> (Vec<String>, String) {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        against(numbers, &files.collect::<Vec<_>>())
    }

    #[test]
    fn openings_without_a_subject_are_counted_and_their_limit_falls() {
        let fine = "/// The one.\nfn f() {}\n".repeat(8);
        for opening in [
            "What is",
            "Whoever it",
            "Those that",
            "The one who",
            "That which",
            "How it is that",
        ] {
            let text = format!("{fine}/// {opening} left.\nfn g() {{}}\n//! What\n/// a\n/// b\n");
            let (found, _) = breaches("", &[("a.rs", &text)]);
            assert!(
                found.len() == 1 && found[0].contains("2 of 11") && found[0].ends_with("2 in a.rs"),
                "{opening}: {found:?}"
            );
            assert_eq!(breaches("comments 19\n", &[("a.rs", &text)]).0, [""; 0]);
            let (found, lowered) = breaches("comments 20\n", &[("a.rs", &text)]);
            assert!(found[0].contains("--lower"), "{found:?}");
            assert_eq!(lowered, "comments 19\n");
        }
        let (found, lowered) = breaches("comments 2\n", &[("a.rs", &fine)]);
        assert!(found.len() == 1 && lowered.is_empty(), "{found:?}");
    }

    #[test]
    fn two_comments_on_one_item_are_found() {
        let long = "x".repeat(60);
        for (fine, text) in [
            (false, "/// Sums up.\n/// Answers whether.\n"),
            (false, "/// Sums up\n/// Answers whether.\n"),
            (false, "    //! Sums up.\n    //! `code` next.\n"),
            (true, "/// Sums up.\n///\n/// Answers whether.\n"),
            (true, "/// Sums up, and\n/// answers whether.\n"),
            (true, "/// Sums up.\nfn f() {}\n/// Answers whether.\n"),
            (true, "/// - One\n/// - Two\n"),
            (true, "/// ```\n/// Run\n/// Away\n/// ```\n"),
            (true, &format!("/// {long}.\n/// Answers whether.\n")),
        ] {
            let (found, _) = breaches("", &[("a.rs", text)]);
            assert_eq!(found.is_empty(), fine, "{text}: {found:?}");
        }
    }

    /// The numbers are those of the script that the writers of pages use.
    #[test]
    fn sentences_are_counted_without_code_tables_and_headings() {
        let words = |count| "word ".repeat(count);
        for (text, counts) in [
            ("# Of many words\n\nOne two. Three four.\n", [2, 0, 0]),
            ("One `two. Three` [four](x. Y): Five", [2, 0, 0]),
            ("e.g. one goes on (\"so.\") Here - and now.", [4, 0, 0]),
            (
                "- one\n- two\n12. three\n\n```\nA B C D\n```\n| A | B C D E F |\n<!-- A B\nC -->",
                [1, 0, 0],
            ),
            (&format!("{}.", words(40)), [40, 0, 0]),
            (&format!("{}.", words(41)), [41, 1, 0]),
            (&format!("One {}end. ", words(28)).repeat(3), [30, 0, 0]),
            (&format!("{}\n{}", words(45), words(46)), [91, 1, 1]),
        ] {
            assert_eq!(page(text), counts, "{text}");
        }
    }

    #[test]
    fn pages_are_listed_and_may_only_get_better() {
        let long = "word ".repeat(41);
        let of = |numbers: &str, text: &str| {
            breaches(numbers, &[("docs/a.md", text), ("CHANGELOG.md", &long)])
        };
        assert_eq!(of("", "Short.").0, [""; 0]);
        let (found, lowered) = of("", &long);
        assert!(
            found.len() == 1 && found[0].contains("41 words (at most 17), 1 sentences"),
            "{found:?}"
        );
        assert_eq!(lowered, "", "a page that becomes worse gets no line");
        assert_eq!(of("docs/a.md 41 1 0\n", &long).0, [""; 0]);
        for (numbers, text, wanted) in [
            ("docs/a.md 42 1 0\n", long.as_str(), "docs/a.md 41 1 0\n"),
            ("docs/a.md 41 2 3\n", &long, "docs/a.md 41 1 0\n"),
            ("docs/a.md 41 1 0\n", "Short.", ""),
            ("docs/b.md 41 1 0\n", "Short.", ""),
        ] {
            let (found, lowered) = of(numbers, text);
            assert!(
                found.len() == 1 && found[0].contains("--lower"),
                "{numbers}: {found:?}"
            );
            assert_eq!(lowered, wanted);
        }
    }
}
