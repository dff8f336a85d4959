//! Names of queues that are like one that does not exist.

use quintet_client::Nearest;

use super::table::named;

/// Queues that are compared at most.
pub(super) const COMPARED: usize = 1_000;
/// Names that are proposed at most.
const PROPOSED: usize = 3;

/// The end of an error: the names that are most like `wanted`, the best first. Empty: there is
/// none.
pub(super) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut nearest = Nearest::to(wanted, PROPOSED);
    nearest.consider(names.take(COMPARED));
    let best: Vec<String> = nearest.names().map(named).collect();
    match best.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", best.join(" or ")),
    }
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
