//! The parts of `bench/results/README.md` that are measured: everything between
//! `<!-- compare NAME -->` and `<!-- end NAME -->` is written from here.

use anyhow::{Context, Result, ensure};

use super::driver::Contender;
use super::experiments::Experiment;
use super::table::Table;
use crate::common::Ran;
use crate::common::sheet::{self, Spread};

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

/// An experiment as the page shows it: medians, a row for each contender, the figures that have a
/// bound, and how it was measured.
pub(crate) fn tables(experiment: &Experiment, tables: &[Table], ran: &Ran) -> String {
    let metric = experiment.metric;
    let row = |(at, one): (usize, &Contender)| {
        let median = |table: &Table| Spread::of(table.samples[at].iter().map(|s| metric.of(s)));
        let medians = tables.iter().map(|table| median(table).median);
        (one.name(), medians.map(metric.show()).collect::<Vec<_>>())
    };
    let rows: Vec<_> = experiment.contenders.iter().enumerate().map(row).collect();
    let scenarios = tables.iter().map(|one| one.scenario.name.as_str());
    let mut text = sheet::markdown(metric.title(), scenarios, &rows) + "\n";
    let figures = experiment.figures_of(tables);
    text += &sheet::figures(figures.iter().filter(|figure| figure.bound.is_some()));
    let short = match ran.short {
        true => " A short run: read it with care.",
        false => "",
    };
    let (turns, seconds, quintet) = (ran.turns, ran.seconds, &ran.quintet);
    let machine = ran.machine.describe();
    text + &format!(
        "\n{turns} turns of {seconds} s each; {machine}. Quintet at {quintet}.{short}\n"
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
