//! Questions to several others at the same time.

use std::thread::Builder;

/// Asks all of them, each in a thread of its own, or where the system gives none, one after the
/// other. The answers have the order of `all`; `None`: asking panicked.
pub fn together<T: Sync, R: Send>(all: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    in_threads(all, &ask, || Builder::new().name("ask".to_owned()))
}

fn in_threads<T: Sync, R: Send>(
    all: &[T],
    ask: &(impl Fn(&T) -> R + Sync),
    thread: impl Fn() -> Builder,
) -> Vec<Option<R>> {
    std::thread::scope(|scope| {
        let begun: Vec<_> = all
            .iter()
            .map(|one| (one, thread().spawn_scoped(scope, move || ask(one)).ok()))
            .collect();
        let answers = begun.into_iter().map(|(one, thread)| match thread {
            Some(thread) => thread.join().ok(),
            None => Some(ask(one)),
        });
        answers.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_asked_also_where_the_system_gives_no_thread() {
        // No machine has so much memory for a stack.
        for stack in [1 << 20, 1 << 60] {
            let thread = || Builder::new().stack_size(stack);
            let answers = in_threads(&[1, 2, 3], &|one| 2 * one, thread);
            assert_eq!(answers, [Some(2), Some(4), Some(6)]);
        }
    }
}
