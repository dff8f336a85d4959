//! Graphs from plain numbers: paths made of integers, which is why templates
//! may take them as they are.

use super::words;

/// Steps of a row's graph; each is 3 wide.
const STEPS: usize = 32;
/// Height of a row's graph, to its ground.
const GROUND: u64 = 25;
/// Smallest number that fills a row's graph: an idle queue is a line, not a mountain range.
const PEAK_MIN: u64 = 25;

/// A graph in a row.
pub(super) struct Spark {
    /// Of 96 x 26.
    pub(super) path: String,
    /// The same in words.
    pub(super) label: String,
}

/// Of samples, oldest first; what was not looked at counts as nothing.
pub(super) fn spark(samples: &[Option<u64>]) -> Option<Spark> {
    let last = samples.len().checked_sub(1)?;
    let values: Vec<u64> = samples.iter().map(|value| value.unwrap_or(0)).collect();
    let peak = values.iter().copied().max().unwrap_or(0);
    let top = peak.saturating_add(peak / 20).max(PEAK_MIN);
    let height = |step: usize| {
        let value = values[step * last / (STEPS - 1)];
        let share = u128::from(value) * u128::from(GROUND - 1) / u128::from(top);
        i64::try_from(share).unwrap_or(0)
    };
    let ground = i64::try_from(GROUND).unwrap_or(0);
    let mut at = ground - height(0);
    let mut path = format!("M-3 27V{at}h3l");
    for step in 1..STEPS {
        let next = ground - height(step);
        if step > 1 {
            path.push(' ');
        }
        path.push_str(&format!("3 {}", next - at));
        at = next;
    }
    path.push_str("h3V27");
    let (first, now) = (values[0], values[last]);
    let way = match now.cmp(&first) {
        _ if now.abs_diff(first) <= peak / 20 => "level",
        std::cmp::Ordering::Greater => "rising",
        std::cmp::Ordering::Less | std::cmp::Ordering::Equal => "falling",
    };
    let least = values.iter().copied().min().unwrap_or(0);
    Some(Spark {
        path,
        label: format!(
            "1 hour: {} to {}, {way}",
            words::count(least),
            words::count(peak)
        ),
    })
}

/// How a chart's values are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Count,
    /// Tenths, each second.
    Rate,
    Seconds,
}

impl Unit {
    fn text(self, value: u64) -> String {
        match self {
            Self::Count => words::short_count(value),
            Self::Rate => words::rate(value),
            Self::Seconds => words::duration(value.saturating_mul(1000)),
        }
    }

    /// The least number that is not below `peak` and whose thirds are round.
    fn top(self, peak: u64) -> u64 {
        const DAY: u64 = 86_400;
        const SECONDS: [u64; 15] = [
            3, 6, 15, 30, 60, 180, 360, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY,
        ];
        if self == Self::Seconds {
            let top = SECONDS.into_iter().find(|top| *top >= peak);
            let days = || Self::Count.top(peak.div_ceil(DAY));
            return top.unwrap_or_else(|| days().saturating_mul(DAY));
        }
        let mut unit = 1_u64;
        loop {
            let steps = [3, 6, 9, 12, 15, 30, 45, 60, 75, 90, 120, 150, 225];
            let tops = steps.map(|step| unit.saturating_mul(step));
            if let Some(top) = tops.into_iter().find(|top| *top >= peak) {
                return top;
            }
            unit = unit.saturating_mul(10);
        }
    }

    /// The labels of a chart's lines, from the top down.
    fn levels(self, top: u64) -> Vec<String> {
        let thirds = [3, 2, 1].map(|third| self.text(top / 3 * third));
        thirds.into_iter().chain(["0".to_owned()]).collect()
    }
}

/// One line of a chart.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Oldest first; `None`: nobody looked, and the line has a gap.
    pub(super) values: Vec<Option<u64>>,
}

/// A chart of 600 x 112; words stand around it.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) now: String,
    /// From the top down.
    pub(super) levels: Vec<String>,
    pub(super) paths: Vec<String>,
    /// Under the only line.
    pub(super) area: Option<String>,
    /// Round times, and where they stand, in hundredths of the width.
    pub(super) ticks: Vec<(usize, String)>,
    pub(super) names: Vec<&'static str>,
    /// Time and values, for those who read them, and for the read-out.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

/// When the steps of a chart ended, by the wall clock.
pub(super) struct Times {
    /// Of the last step, ms.
    pub(super) end: u64,
    pub(super) step_ms: u64,
    pub(super) steps: usize,
    /// Between two round times, ms.
    pub(super) every_ms: u64,
}

impl Times {
    fn of(&self, step: usize) -> u64 {
        let back = (self.steps - 1).saturating_sub(step) as u64;
        self.end.saturating_sub(back.saturating_mul(self.step_ms))
    }

    fn moment(&self, step: usize) -> String {
        words::hour_and_minute(self.of(step))
    }

    /// Round times that do not stand at an edge, where their text would be cut.
    fn ticks(&self) -> Vec<(usize, String)> {
        let last = self.steps.saturating_sub(1).max(1);
        let ticks = (1..self.steps).filter_map(|step| {
            let (before, now) = (self.of(step - 1), self.of(step));
            let round = now / self.every_ms * self.every_ms;
            let at = step * 100 / last;
            let is = before < round && (5..=93).contains(&at);
            is.then(|| (at, words::hour_and_minute(round)))
        });
        ticks.collect()
    }
}

/// Of lines as long as one another.
pub(super) fn chart(
    title: &'static str,
    unit: Unit,
    lines: &[Line],
    times: &Times,
) -> Option<Chart> {
    let steps = lines.first()?.values.len();
    let last = steps.checked_sub(1).filter(|last| *last > 0)?;
    let values = || lines.iter().flat_map(|line| line.values.iter().flatten());
    let top = unit.top(values().copied().max().unwrap_or(0).max(1));
    let y = |value: u64| 112 - u128::from(value) * 112 / u128::from(top);
    let x = |step: usize| step * 600 / last;
    let path = |line: &Line| {
        let mut path = String::new();
        let mut pen = 'M';
        for (step, value) in line.values.iter().enumerate() {
            match value {
                Some(value) => {
                    path.push_str(&format!("{pen}{} {}", x(step), y(*value)));
                    let last = line.values.get(step + 1).is_none_or(Option::is_none);
                    if pen == 'M' && last {
                        // One between gaps is a dot.
                        path.push_str("h0");
                    }
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        path
    };
    let paths: Vec<String> = lines.iter().map(path).collect();
    // Under the only line, from where it begins, if it has no gap behind that.
    let only = lines.first().filter(|_| lines.len() == 1).and_then(|line| {
        let first = line.values.iter().position(Option::is_some)?;
        let whole = line.values[first..].iter().all(Option::is_some);
        whole.then_some(first)
    });
    let text = |value: &Option<u64>| value.map_or_else(|| words::NONE.to_owned(), |v| unit.text(v));
    let now = lines.iter().map(|line| {
        let now = text(line.values.last().unwrap_or(&None));
        match lines.len() {
            1 => now,
            _ => format!("{now} {}", line.name),
        }
    });
    let row = |step: usize| {
        let values = lines.iter().map(|line| text(&line.values[step]));
        (times.moment(step), values.collect())
    };
    Some(Chart {
        title,
        now: now.collect::<Vec<_>>().join(", "),
        levels: unit.levels(top),
        area: only.map(|first| format!("{}L600 112L{} 112z", paths[0], x(first))),
        paths,
        ticks: times.ticks(),
        names: lines.iter().map(|line| line.name).collect(),
        rows: (0..steps).map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_s_graph_is_short_and_idle_queues_are_flat() {
        let flat = spark(&[Some(0); 60]).expect("a graph");
        assert!(
            flat.path.starts_with("M-3 27V25h3l3 0 3 0"),
            "{}",
            flat.path
        );
        assert!(flat.label.ends_with("level"), "{}", flat.label);
        let rising: Vec<Option<u64>> = (0..60).map(|n| Some(n * 1_000_000)).collect();
        let rising = spark(&rising).expect("a graph");
        assert_eq!(rising.label, "1 hour: 0 to 59,000,000, rising");
        assert!(rising.path.len() < 200, "{}", rising.path.len());
        assert!(spark(&[]).is_none());
        assert!(spark(&[None, Some(u64::MAX)]).is_some());
    }

    #[test]
    fn a_chart_keeps_gaps_and_has_round_levels() {
        let line = Line {
            name: "ready",
            values: vec![Some(0), Some(70), None, Some(42), Some(30)],
        };
        let times = Times {
            end: 1_800_000_060_000,
            step_ms: 60_000,
            steps: 5,
            every_ms: 120_000,
        };
        let chart = chart("Ready", Unit::Count, &[line], &times).expect("one");
        // 08:00, and the edges are left out.
        assert_eq!(
            chart.ticks,
            [(25, "07:58".to_owned()), (75, "08:00".to_owned())]
        );
        assert_eq!(chart.paths, ["M0 112L150 8M450 50L600 68"]);
        assert_eq!(chart.area, None);
        assert_eq!(chart.levels, ["75", "50", "25", "0"]);
        assert_eq!(chart.now, "30");
        assert_eq!(chart.rows[2].1, ["–"]);
        let alone = Line {
            name: "ready",
            values: vec![None, Some(70), None, None, Some(70)],
        };
        let alone = super::chart("Ready", Unit::Count, &[alone], &times).expect("one");
        assert_eq!(alone.paths, ["M150 8h0M600 8h0"]);
        assert_eq!(Unit::Seconds.top(2832), 3600);
        assert_eq!(Unit::Rate.text(612), "61.2");
        assert_eq!(Unit::Count.top(u64::MAX), u64::MAX);
    }

    #[test]
    fn every_line_of_a_chart_is_at_a_round_number() {
        for (unit, peak, levels) in [
            (Unit::Count, 1, ["3", "2", "1"]),
            (Unit::Count, 16, ["30", "20", "10"]),
            (Unit::Count, 200, ["225", "150", "75"]),
            (Unit::Count, 2_300_000, ["3.00 M", "2.00 M", "1.00 M"]),
            (Unit::Rate, 5, ["0.6", "0.4", "0.2"]),
            (Unit::Rate, 400, ["45.0", "30.0", "15.0"]),
            (Unit::Seconds, 301, ["6m", "4m", "2m"]),
            (Unit::Seconds, 200_000, ["3d", "2d", "1d"]),
        ] {
            assert_eq!(unit.levels(unit.top(peak))[..3], levels, "{peak}");
        }
        for peak in 1..100_000 {
            let top = Unit::Count.top(peak);
            assert!(
                top.is_multiple_of(3) && (peak..=2 * peak + 1).contains(&top),
                "{peak}"
            );
        }
        let last = Unit::Count.levels(u64::MAX);
        assert_eq!(last[1], "12,297 P");
    }

    #[test]
    fn a_time_whose_text_would_be_cut_is_left_out() {
        // Minutes from 08:00 to the end of the chart, and the minute of its last text.
        for (behind, last) in [(3, 45), (5, 0), (14, 0)] {
            let times = Times {
                end: 1_800_000_000_000 + behind * 60_000,
                step_ms: 60_000,
                steps: 60,
                every_ms: 900_000,
            };
            let (at, text) = times.ticks().pop().expect("one");
            assert!(
                at <= 93 && text.ends_with(&format!(":{last:02}")),
                "{at} {text}"
            );
        }
    }
}
