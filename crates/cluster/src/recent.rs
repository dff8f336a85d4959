//! A measure of which single samples are too small and never too large.

/// The largest sample of the newest two periods that had any.
///
/// A reader that stood still gets old frames all at once. A period may then have nothing but late
/// samples, so the period before it counts until there are samples of a third one.
#[derive(Default)]
pub(crate) struct Recent {
    before: Option<i64>,
    now: Option<i64>,
    /// The next sample begins a period.
    ended: bool,
}

impl Recent {
    pub(crate) fn add(&mut self, sample: i64) {
        if std::mem::take(&mut self.ended) {
            self.before = self.now.take();
        }
        self.now = self.now.max(Some(sample));
    }

    pub(crate) fn largest(&self) -> Option<i64> {
        self.now.max(self.before)
    }

    /// Ends the period; whether it had samples.
    pub(crate) fn end(&mut self) -> bool {
        let had = self.now.is_some() && !self.ended;
        self.ended |= had;
        had
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn a_period_of_late_samples_hides_nothing_and_the_third_forgets_the_first() {
        let mut recent = Recent::default();
        assert!(!recent.end());
        assert_eq!(recent.largest(), None);
        recent.add(7);
        recent.add(5);
        assert!(recent.end());
        recent.add(-4);
        assert!(recent.end());
        // Nothing comes for a while.
        assert!(!recent.end());
        assert_eq!(recent.largest(), Some(7));
        recent.add(6);
        assert_eq!(
            recent.largest(),
            Some(6),
            "owners also set their time back slowly"
        );
        recent.add(8);
        assert_eq!(recent.largest(), Some(8));
    }
}
