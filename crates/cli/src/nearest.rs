//! Names of queues that are like one that does not exist.

use super::table::named;

/// Queues that are compared at most.
pub(super) const COMPARED: usize = 1_000;
/// Letters of a name that are compared.
const LETTERS: usize = 100;
/// How alike two names have to be, of 1.
const ALIKE: f64 = 0.8;
/// Names that are proposed at most.
const PROPOSED: usize = 3;

/// The end of an error: the names that are most like `wanted`, the best first. Empty: there is
/// none.
pub(super) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let wanted = letters(wanted);
    let mut best: Vec<(f64, &str)> = names
        .take(COMPARED)
        .map(|name| (strsim::jaro_winkler(&wanted, &letters(name)), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    best.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    let best = best.iter().take(PROPOSED).map(|(_, name)| named(name));
    let best: Vec<String> = best.collect();
    match best.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", best.join(" or ")),
    }
}

fn letters(name: &str) -> String {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn the_most_alike_names_are_proposed_and_no_others() {
        let all = ["orders", "work", "mail"];
        let of = |wanted: &str| hint(wanted, all.into_iter());
        assert_eq!(of("wrk"), "; did you mean work?");
        assert_eq!(of("Order"), "; did you mean orders?");
        assert_eq!(of("zzz"), "");
        assert_eq!(hint("work", std::iter::empty()), "");
    }
}
