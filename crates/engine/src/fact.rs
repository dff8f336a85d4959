//! Facts.

/// A fact.
#[derive(Debug, Clone)]
pub enum Fact {}

/// Takes facts down, in order.
pub trait Journal {
    /// Records one fact. Infallible: a journal that cannot write ends the process.
    fn record(&mut self, fact: &Fact);
}
