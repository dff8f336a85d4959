//! The commands that pages and `--help` show are commands of this program.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::Cli;

/// Lines of the program's output that begin with its name.
const SAID: &[&str] = &["quintet ready", "quintet 0.2.0"];
/// Command of a design, which says so.
const PLANNED: &[&str] = &["quintet rekey"];

/// The commands in a block or a line of code, `quintet` first. In a line it may be cut short: it
/// stands for all commands that begin so.
fn shown(page: &str) -> Vec<(String, bool)> {
    let mut commands = Vec::new();
    let mut fenced = false;
    for line in page.lines() {
        let text = line.trim();
        if text.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            let command = text.strip_prefix("$ ").unwrap_or(text);
            if command.starts_with("quintet ") {
                commands.push((command.to_owned(), false));
            }
            continue;
        }
        let spans = text.split('`').skip(1).step_by(2);
        commands.extend(spans.filter_map(|span| {
            let span = span.strip_prefix("$ ").unwrap_or(span);
            span.starts_with("quintet ")
                .then(|| (span.to_owned(), true))
        }));
    }
    commands.retain(|(command, _)| {
        let none = SAID.iter().chain(PLANNED);
        !none.copied().any(|none| command.starts_with(none))
    });
    commands
}

/// The words of a command as a shell has them, up to what is not the command's: a pipe, a remark,
/// what it does (behind two blanks).
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut characters = command.chars().peekable();
    while let Some(character) = characters.next() {
        let last = words.last_mut().expect("there is one");
        match (quote, character) {
            (Some(open), character) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (Some(_), character) => last.push(character),
            (None, '|' | ';' | '&' | '<' | '>' | '#') => break,
            (None, ' ') if characters.peek() == Some(&' ') => break,
            // Another one follows.
            (None, ',') if characters.peek() == Some(&' ') => break,
            (None, ' ') => words.push(String::new()),
            (None, character) => last.push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Pages leave out what may be left out, and name what stands for something.
fn filled(words: Vec<String>) -> Vec<String> {
    let words = words.into_iter().filter(|word| !word.starts_with('['));
    words
        .map(|word| match word.trim_end_matches("...") {
            "ID" => "1".to_owned(),
            "TIME" => "10s".to_owned(),
            "RATE" | "N" => "10".to_owned(),
            word => word.to_owned(),
        })
        .filter(|word| word != "…" && !word.is_empty())
        .collect()
}

/// Why it is no command; one that is cut short is one, and one that lacks what it needs.
fn wrong(command: &str, cut: bool) -> Option<String> {
    let parsed = Cli::try_parse_from(filled(words(command)));
    let error = parsed.err()?;
    let fine = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::TooFewValues,
    ];
    let text = error.to_string();
    let why = text.lines().next().unwrap_or_default().to_owned();
    let part = [ErrorKind::InvalidValue, ErrorKind::ValueValidation];
    let lacks = cut && part.contains(&error.kind());
    (!lacks && !fine.contains(&error.kind())).then_some(why)
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of pages") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn the_commands_of_pages_are_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    for folder in ["docs", "examples", "packaging"] {
        pages(&root.join(folder), &mut found);
    }
    let (mut all, mut bad) = (0, Vec::new());
    for path in found {
        let page = std::fs::read_to_string(&path).expect("a page");
        for (command, cut) in shown(&page) {
            all += 1;
            if let Some(why) = wrong(&command, cut) {
                bad.push(format!("{}: {command}\n    {why}", path.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(all > 100, "only {all} commands were found");
}

#[test]
fn the_examples_of_help_are_commands() {
    fn examples(of: &clap::Command, into: &mut Vec<String>) {
        let help = of.get_after_help().map(ToString::to_string);
        for line in help.unwrap_or_default().lines() {
            if line.trim().starts_with("quintet ") {
                into.push(line.trim().to_owned());
            }
        }
        for sub in of.get_subcommands() {
            examples(sub, into);
        }
    }
    let mut all = Vec::new();
    examples(&Cli::command(), &mut all);
    assert!(all.len() > 50, "only {} examples were found", all.len());
    let bad: Vec<String> = all
        .iter()
        .filter_map(|command| Some(format!("{command}\n    {}", wrong(command, false)?)))
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Help that is no doc comment, such as examples, has no words that `cargo xtask tidy` refuses.
#[test]
fn help_has_no_words_of_the_list() {
    fn check(command: &clap::Command, list: &str) {
        let help = command.clone().render_long_help().to_string();
        let spoken = help.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
        let spoken = spoken.to_lowercase();
        let words = spoken.split(|c: char| !c.is_alphanumeric() && c != '-');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let text = format!(" {} ", words.join(" "));
        let rows = list.lines().filter(|line| !line.starts_with('#'));
        for (old, instead) in rows.filter_map(|line| line.split_once(": ")) {
            for old in old.split(", ") {
                let name = command.get_name();
                assert!(
                    !text.contains(&format!(" {old} ")),
                    "{name}: \"{old}\": write {instead}"
                );
            }
        }
        for sub in command.get_subcommands() {
            check(sub, list);
        }
    }
    let mut all = Cli::command();
    all.build();
    check(&all, include_str!("../../../xtask/words.txt"));
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let page = "text `quintet put a 'b c' | x` and `other`\n```\n$ quintet take a &\nout\n```\n";
    let all = shown(page);
    let put = "quintet put a 'b c' | x";
    let take = "quintet take a &";
    assert_eq!(all, [(put.to_owned(), true), (take.to_owned(), false)]);
    assert_eq!(words(put), ["quintet", "put", "a", "b c"]);
    assert_eq!(
        words("quintet queues     lists them"),
        ["quintet", "queues"]
    );
    assert!(wrong("quintet put work", false).is_none(), "cut short");
    assert!(wrong("quintet import --from", true).is_none(), "cut short");
    assert!(wrong("quintet leases [QUEUE]", false).is_none());
    for (command, why) in [
        ("quintet putt work hello", "unrecognized subcommand"),
        ("quintet put work hello --rnak 1", "unexpected argument"),
        ("quintet delete ten", "invalid value"),
    ] {
        let output = wrong(command, false).unwrap_or_default();
        assert!(output.contains(why), "{command}: {output}");
    }
}
