//! The parts of `bench/results/README.md` that are measured: everything between
//! `<!-- compare NAME -->` and `<!-- end NAME -->` is written from here.

use anyhow::{Context, Result, ensure};

use crate::common::sheet::{self, Sheet};
use crate::common::{Found, Ran};

/// Puts `block` between the marks of `name`.
///
/// # Errors
/// The page lacks a mark.
pub(crate) fn replace(page: &str, name: &str, block: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- compare {name} -->\n"),
        format!("<!-- end {name} -->"),
    );
    let missing = || format!("the page has no part {begin:?} to {end:?}");
    let from = page.find(&begin).with_context(missing)? + begin.len();
    let to = page.find(&end).with_context(missing)?;
    ensure!(from <= to, missing());
    Ok(format!("{}{block}{}", &page[..from], &page[to..]))
}

/// An experiment as the page shows it: its tables, the figures that have a bound, and how it was
/// measured.
pub(crate) fn part(found: &Found, ran: &Ran) -> String {
    let tables: String = found.tables.iter().map(Sheet::markdown).collect();
    let figures = found.figures.iter();
    let figures = sheet::figures(figures.filter(|figure| figure.bound.is_some()));
    let short = match ran.short {
        true => " A short run: read it with care.",
        false => "",
    };
    let (turns, seconds, quintet) = (ran.turns, ran.seconds, &ran.quintet);
    let machine = ran.machine.describe();
    format!(
        "{tables}\n{figures}\n{turns} turns of {seconds} s each; {machine}. Quintet at \
         {quintet}.{short}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn only_the_part_is_replaced() {
        let page = "a\n<!-- compare x -->\nold\n<!-- end x -->\nb\n";
        let new = replace(page, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- compare x -->\nnew\n<!-- end x -->\nb\n");
        assert_eq!(replace(&new, "x", "old\n").unwrap(), page);
        for (page, name) in [(page, "y"), ("<!-- end x -->\n<!-- compare x -->\n", "x")] {
            assert!(replace(page, name, "").is_err());
        }
    }
}
