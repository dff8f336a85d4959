//! The parts of `docs/performance.md` that are measured: everything between
//! `<!-- compare NAME -->` and `<!-- end NAME -->` is written from here.

use anyhow::{Context, Result, ensure};

use super::experiments::Experiment;
use super::machine::{Machine, SyncTimes};
use super::results::{Figure, Spread, Table};
use super::{Outcome, Ran};

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

/// An experiment as the page shows it.
pub(crate) fn block(experiment: &Experiment, outcome: &Outcome) -> String {
    let Experiment { name, title, .. } = experiment;
    format!("![{title}](../bench/results/{name}.svg)\n\n") + &tables(experiment, outcome)
}

/// The same without the plot.
pub(crate) fn tables(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut text = table(experiment, &outcome.tables) + "\n";
    text += &figures(&outcome.figures);
    text += &conditions(&outcome.ran, &outcome.sync);
    text
}

/// Medians with the least and the most, a row for each contender.
fn table(experiment: &Experiment, tables: &[Table]) -> String {
    let Some(first) = tables.first() else {
        return String::new();
    };
    let mut text = format!("| {} |", experiment.metric.title());
    for table in tables {
        text += &format!(" {} |", table.scenario.name);
    }
    text += "\n|---|";
    text += &"---|".repeat(tables.len());
    text += "\n";
    for (at, contender) in first.contenders.iter().enumerate() {
        text += &format!("| {} |", contender.name());
        for table in tables {
            let values = table.samples[at].iter().map(|s| experiment.metric.of(s));
            let Spread {
                median,
                least,
                most,
            } = Spread::of(values);
            let show = |value| experiment.metric.show(value);
            text += &format!(" {} ({} to {}) |", show(median), show(least), show(most));
        }
        text += "\n";
    }
    text
}

/// The figures with what they should be.
pub(crate) fn figures(figures: &[Figure]) -> String {
    let mut text = String::from("| figure | measured | wanted | reached |\n|---|---|---|---|\n");
    for figure in figures {
        let Spread {
            median,
            least,
            most,
        } = figure.value;
        let wanted = figure.bound.map_or("-".to_owned(), |bound| bound.show());
        let reached = match figure.reached {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "-",
        };
        text += &format!(
            "| {} | {median:.2} ({least:.2} to {most:.2}) | {wanted} | {reached} |\n",
            figure.what
        );
    }
    text
}

fn conditions(ran: &Ran, sync: &SyncTimes) -> String {
    let Ran {
        machine,
        turns,
        seconds,
        quintet,
        short,
        ..
    } = ran;
    let short = if *short {
        " A short run: read it with care."
    } else {
        ""
    };
    format!(
        "\n{turns} turns of {seconds} s each; {}; {}. Quintet at {quintet}.{short}\n",
        Machine::describe(machine),
        sync.describe()
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
