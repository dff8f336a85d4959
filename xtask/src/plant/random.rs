//! Changes by chance: cargo-mutants lists them, and the driver of the planted defects plants them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Defect, Tests};
use crate::tool;

/// The version of cargo-mutants.
const VERSION: &str = "27.1.0";

const TYPES: &str = "--package=quintet-types";
const ENGINE: &str = "--package=quintet-engine";
const SIM: &str = "--package=quintet-sim";

/// The crates that are changed by turns, and the tests that should notice.
const CRATES: [(&str, Tests); 4] = [
    ("types", &[&[TYPES, ENGINE, SIM]]),
    ("engine", &[&[ENGINE, SIM]]),
    ("log", &[&["--package=quintet-log"]]),
    ("host", &[&["--package=quintet-host"]]),
];

/// All changes that were not tried yet.
pub(super) struct Changes {
    tree: PathBuf,
    /// Those of each crate of [`CRATES`].
    left: [Vec<Value>; CRATES.len()],
    turn: usize,
    state: u64,
}

impl Changes {
    /// Lists those of `tree`; `seed` chooses their order.
    ///
    /// # Errors
    /// cargo-mutants cannot be built or fails.
    pub(super) fn list(root: &Path, tree: &Path, seed: u64) -> Result<Self> {
        let program = tool::installed(root, "cargo-mutants", VERSION)?;
        let files = CRATES.map(|(name, _)| format!("--file=crates/{name}/src/**/*.rs"));
        let listed = Command::new(program)
            .args(["mutants", "--workspace", "--list", "--json"])
            .args(files)
            .current_dir(tree)
            .output()?;
        let output = String::from_utf8_lossy(&listed.stderr);
        ensure!(listed.status.success(), "cargo mutants: {output}");
        let all: Vec<Value> = serde_json::from_slice(&listed.stdout).context("cargo mutants")?;
        let of = |name: &str| {
            let folder = format!("crates/{name}/");
            let its = |change: &&Value| change["file"].as_str().unwrap_or("").starts_with(&folder);
            all.iter().filter(its).cloned().collect()
        };
        Ok(Self {
            tree: tree.to_owned(),
            left: CRATES.map(|(name, _)| of(name)),
            turn: 0,
            state: seed,
        })
    }

    /// The defect of a change, whose name is its place in the source.
    fn defect(&self, change: &Value, tests: Tests) -> Result<Defect> {
        let text = |key: &str| change[key].as_str().with_context(|| format!("no {key}"));
        let file = text("file")?.to_owned();
        let before = std::fs::read_to_string(self.tree.join(&file)).context("its file")?;
        let after = replaced(&before, &change["span"], text("replacement")?);
        let (name, what) = text("name")?.split_once(": ").context("its name")?;
        Ok(Defect {
            name: name.to_owned(),
            what: what.replace('|', "\\|"),
            files: vec![(file, after.context("its position")?)],
            tests,
            random: true,
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Defect>;

    /// Takes one of the next crate that has any.
    fn next(&mut self) -> Option<Self::Item> {
        let order = (self.turn..).take(CRATES.len()).map(|at| at % CRATES.len());
        let at = { order }.find(|at| !self.left[*at].is_empty())?;
        self.turn = at + 1;
        let chosen = next(&mut self.state) % self.left[at].len() as u64;
        let change = self.left[at].swap_remove(usize::try_from(chosen).ok()?);
        let defect = self.defect(&change, CRATES[at].1);
        Some(defect.context("what cargo-mutants lists"))
    }
}

/// splitmix64.
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `text` with `put` in place of a span of lines and columns, which count from 1.
fn replaced(text: &str, span: &Value, put: &str) -> Option<String> {
    let offset = |end: &str| {
        let number = |key: &str| usize::try_from(span[end][key].as_u64()?).ok();
        let (line, column) = (number("line")?.checked_sub(1)?, number("column")?);
        let before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let mut places = text.get(before..)?.char_indices();
        Some(before + places.nth(column.checked_sub(1)?)?.0)
    };
    let (start, end) = (offset("start")?, offset("end")?);
    Some(format!("{}{put}{}", text.get(..start)?, text.get(end..)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CRATES, Changes, replaced};

    #[test]
    fn a_span_is_replaced() {
        let span = |from: (u8, u8), to: (u8, u8)| json!({ "start": { "line": from.0, "column": from.1 }, "end": { "line": to.0, "column": to.1 } });
        let text = "one\n  é + b\nthree\n";
        let put = |span| replaced(text, &span, "-");
        assert_eq!(put(span((2, 5), (2, 6))).unwrap(), "one\n  é - b\nthree\n");
        assert_eq!(put(span((1, 2), (3, 3))).unwrap(), "o-ree\n");
        for nowhere in [span((0, 1), (1, 1)), span((9, 1), (9, 2)), json!({})] {
            assert_eq!(put(nowhere), None);
        }
    }

    #[test]
    fn a_seed_chooses_the_same_again_and_crates_take_turns() {
        let names = |seed| {
            let of = |name: &str, count: u8| {
                let one = |at| {
                    json!({
                        "file": "xtask/Cargo.toml", "name": format!("{name}{at}: a | b"), "replacement": "",
                        "span": { "start": { "line": 1, "column": 1 }, "end": { "line": 1, "column": 2 } },
                    })
                };
                (0..count).map(one).collect()
            };
            let changes = Changes {
                tree: crate::root(),
                left: [of("t", 20), of("e", 20), of("l", 1), of("h", 20)],
                turn: 0,
                state: seed,
            };
            let defects = changes.map(|defect| defect.expect("it fits"));
            defects.map(|defect| defect.name).collect::<Vec<_>>()
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        let mut all = names(7);
        let turns: String = all[..7].iter().map(|name| &name[..1]).collect();
        assert_eq!(turns, "telhteh");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 61);
    }

    #[test]
    fn the_crates_are_there() {
        for (name, tests) in CRATES {
            assert!(crate::root().join("crates").join(name).is_dir(), "{name}");
            for package in tests.iter().copied().flatten() {
                let name = package.trim_start_matches("--package=quintet-");
                assert!(crate::root().join("crates").join(name).is_dir(), "{name}");
            }
        }
    }
}
