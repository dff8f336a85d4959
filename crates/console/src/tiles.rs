//! Figures at the top of a page, in groups: now, in the last minute, ever.

/// Words and figures.
type Figures = Vec<(&'static str, String)>;

/// Groups of figures, each with what they are about.
pub(super) type Tiles = Vec<(&'static str, Figures)>;

/// The groups that have figures.
pub(super) fn tiles(now: Figures, minute: Figures, ever: Figures) -> Tiles {
    let all = [("Now", now), ("Last minute", minute), ("Total", ever)];
    let some = all.into_iter().filter(|(_, figures)| !figures.is_empty());
    some.collect()
}
