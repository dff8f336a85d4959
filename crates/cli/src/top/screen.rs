//! Screens of `top`: keys and snapshots go in, actions come out.

use std::collections::VecDeque;

use super::snapshot::{Dead, Finding, Queue, Snapshot};

/// A key, as far as it means something here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// The next action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Nothing,
    Quit,
    Pause(String),
    Resume(String),
    /// Tries its failed messages again.
    Retry(String),
    /// Counts what waits in it, for [`Screen::counted`].
    Count(String),
    /// Removes so many of what waits in it.
    Purge(String, u64),
}

quintet_types::named! {
    /// Columns that sort queues.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Column, name {
        Name = "name",
        Ready = "ready",
        /// How many were ready at the last snapshots.
        Trend = "trend",
        Oldest = "oldest",
        Delayed = "delayed",
        Reserved = "reserved",
        Buried = "buried",
        In = "in/s",
        Out = "out/s",
        /// Failed for good.
        Failed = "failed/s",
        /// Dropped or expired.
        Lost = "lost/s",
        Waiters = "waiters",
    }
}

impl Column {
    /// Columns that a narrow screen leaves out, the first one first.
    pub(super) const LEFT_OUT: [Self; 11] = [
        Self::Waiters,
        Self::Failed,
        Self::Trend,
        Self::Delayed,
        Self::Lost,
        Self::Reserved,
        Self::Buried,
        Self::Oldest,
        Self::Out,
        Self::In,
        Self::Ready,
    ];

    /// The column so many to the right, round the end.
    fn beside(self, right: usize) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self);
        Self::ALL[(at.unwrap_or(0) + right) % Self::ALL.len()]
    }

    fn value(self, queue: &Queue) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "to sort by")]
        let of = |number: u64| number as f64;
        match self {
            Self::Name => 0.0,
            Self::Ready => of(queue.ready),
            Self::Trend => of(queue.ready) - of(queue.trend.first().copied().unwrap_or(0)),
            Self::Oldest => of(queue.oldest_ms),
            Self::Delayed => of(queue.delayed),
            Self::Reserved => of(queue.reserved),
            Self::Buried => of(queue.buried),
            Self::In => queue.into.unwrap_or(-1.0),
            Self::Out => queue.out.unwrap_or(-1.0),
            Self::Failed => queue.left.map_or(-1.0, |left| left.failed),
            Self::Lost => queue.lost().unwrap_or(-1.0),
            Self::Waiters => of(queue.waiters),
        }
    }
}

/// Content of the screen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Page {
    Queues,
    Connections,
    /// Why queues need attention.
    Attention,
    Queue(String),
    /// The buried messages and dead letters of this queue.
    Dead(String),
    Help,
    /// The messages that come into this queue and leave it.
    Follow(String),
}

/// Meaning of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Prompt {
    Nothing,
    /// The filter is typed; it was this before.
    Filter(String),
    /// Whether so many messages of a queue are purged.
    Purge(String, u64),
}

/// Lines of a followed queue that are kept.
const LINES: usize = 1000;

/// Lines a page key moves by.
const PAGE: usize = 10;

quintet_types::defaults! {
    /// The state of it all.
    pub(super) struct Screen {
        pub(super) snapshot: Snapshot = Snapshot::default(),
        pub(super) page: Page = Page::Queues,
        /// Pages that Esc leads back to, the next one last.
        behind: Vec<Page> = Vec::new(),
        pub(super) prompt: Prompt = Prompt::Nothing,
        pub(super) sort: Column = Column::Ready,
        /// The other way round: numbers begin with the largest, names with A.
        pub(super) reversed: bool = false,
        /// Queues whose names contain this.
        pub(super) filter: String = String::new(),
        /// The queue that keys are about; it is kept when others come or the order changes.
        picked: Option<String> = None,
        /// The line of connections, findings or dead letters at the top.
        pub(super) scrolled: usize = 0,
        /// Events of a followed queue, oldest first.
        pub(super) lines: VecDeque<String> = VecDeque::new(),
        /// Dead letters of the queue whose page this is; `None`: not known yet.
        pub(super) dead: Option<Vec<Dead>> = None,
        /// Why messages of the queue whose page this is wait; may be empty.
        pub(super) why_slow: String = String::new(),
        /// The last action, or an error.
        pub(super) says: String = String::new(),
    }
}

impl Screen {
    pub(super) fn new(filter: String) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// Takes what was seen.
    pub(super) fn seen(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot.since(&self.snapshot);
    }

    /// Takes what a followed queue's messages did.
    pub(super) fn followed(&mut self, lines: impl IntoIterator<Item = String>) {
        self.lines.extend(lines);
        let over = self.lines.len().saturating_sub(LINES);
        self.lines.drain(..over);
    }

    /// So many messages would be purged: asks whether they are to be.
    pub(super) fn counted(&mut self, queue: String, messages: u64) {
        match messages {
            0 => self.says = format!("nothing waits in {queue}"),
            _ => self.prompt = Prompt::Purge(queue, messages),
        }
    }

    /// The queues that are shown, in order.
    pub(super) fn rows(&self) -> Vec<&Queue> {
        let queues = self.snapshot.queues.iter();
        let mut rows: Vec<&Queue> = queues
            .filter(|queue| queue.shown.contains(&self.filter))
            .collect();
        rows.sort_by(|a, b| {
            // Names have the same value each.
            let value = |queue| self.sort.value(queue);
            let by = value(b).total_cmp(&value(a));
            let by = by.then_with(|| a.name.cmp(&b.name));
            if self.reversed { by.reverse() } else { by }
        });
        rows
    }

    /// Where among the rows the queue is that keys are about.
    pub(super) fn at(&self) -> usize {
        let rows = self.rows();
        let name = self.picked.as_deref();
        let at = rows
            .iter()
            .position(|queue| Some(queue.name.as_str()) == name);
        at.unwrap_or(0)
    }

    fn pick(&mut self, at: usize) {
        let rows = self.rows();
        let row = rows.get(at.min(rows.len().saturating_sub(1)));
        self.picked = row.map(|queue| queue.name.clone());
    }

    /// The queue that keys are about: the page's, or the one that is picked.
    pub(super) fn subject(&self) -> Option<&Queue> {
        match &self.page {
            Page::Queue(name) | Page::Dead(name) | Page::Follow(name) => self
                .snapshot
                .queues
                .iter()
                .find(|queue| queue.name == *name),
            Page::Queues | Page::Connections | Page::Attention | Page::Help => {
                self.rows().get(self.at()).copied()
            }
        }
    }

    /// Why queues need attention, as far as the server says.
    pub(super) fn findings(&self) -> &[Finding] {
        match &self.snapshot.findings {
            Some(findings) => findings.listed.as_slice(),
            None => &[],
        }
    }

    /// Why a queue needs attention, if it does.
    pub(super) fn finding(&self, queue: &Queue) -> Option<&Finding> {
        self.findings()
            .iter()
            .find(|finding| finding.queue == queue.name)
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Act {
        if key == Key::Interrupt {
            return Act::Quit;
        }
        match std::mem::replace(&mut self.prompt, Prompt::Nothing) {
            Prompt::Nothing => {}
            Prompt::Filter(before) => {
                self.type_filter(key, before);
                return Act::Nothing;
            }
            Prompt::Purge(queue, messages) => {
                if matches!(key, Key::Char('y' | 'Y')) {
                    return Act::Purge(queue, messages);
                }
                self.says = format!("nothing of {queue} was purged");
                return Act::Nothing;
            }
        }
        self.says.clear();
        match self.page {
            Page::Queues => self.key_of_queues(key),
            Page::Connections | Page::Attention | Page::Dead(_) => self.key_of_lines(key),
            Page::Queue(_) | Page::Follow(_) | Page::Help => self.key_back(key),
        }
    }

    fn type_filter(&mut self, key: Key, before: String) {
        match key {
            Key::Enter => return,
            Key::Escape => {
                self.filter = before;
                return;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(char) => self.filter.push(char),
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => {}
            Key::Interrupt => {}
        }
        self.prompt = Prompt::Filter(before);
    }

    fn key_of_queues(&mut self, key: Key) -> Act {
        let at = self.at();
        match key {
            Key::Char('q') | Key::Escape => return Act::Quit,
            Key::Up | Key::Char('k') => self.pick(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.pick(at + 1),
            Key::PageUp => self.pick(at.saturating_sub(PAGE)),
            Key::PageDown => self.pick(at + PAGE),
            Key::Home | Key::Char('g') => self.pick(0),
            Key::End | Key::Char('G') => self.pick(usize::MAX),
            Key::Char('>' | 's') => self.sort = self.sort.beside(1),
            Key::Char('<') => self.sort = self.sort.beside(Column::ALL.len() - 1),
            Key::Char('i') => self.reversed = !self.reversed,
            Key::Char('/') => self.prompt = Prompt::Filter(self.filter.clone()),
            Key::Char('c') => self.open(Page::Connections),
            Key::Char('a') => self.open(Page::Attention),
            Key::Char('?') => self.open(Page::Help),
            Key::Enter => {
                if let Some(queue) = self.subject() {
                    self.open(Page::Queue(queue.name.clone()));
                }
            }
            Key::Char(_) | Key::Backspace | Key::Interrupt => return self.key_of_subject(key),
        }
        Act::Nothing
    }

    /// Keys that are about a queue, on each page that is about one.
    fn key_of_subject(&mut self, key: Key) -> Act {
        let Some(queue) = self.subject() else {
            return Act::Nothing;
        };
        let (name, paused) = (queue.name.clone(), queue.paused);
        match key {
            Key::Char('p') if paused => return Act::Resume(name),
            Key::Char('p') => return Act::Pause(name),
            Key::Char('r') => return Act::Retry(name),
            Key::Char('x') => return Act::Count(name),
            Key::Char('f') => self.open(Page::Follow(name)),
            Key::Char('d') => self.open(Page::Dead(name)),
            Key::Char(_) | Key::Enter | Key::Escape | Key::Backspace | Key::Interrupt => {}
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => {}
        }
        Act::Nothing
    }

    /// Goes to a page, from which Esc leads back to this one.
    fn open(&mut self, page: Page) {
        if page != self.page {
            self.behind.push(self.page.clone());
            self.show(page);
        }
    }

    /// Nothing of the page before is left.
    fn show(&mut self, page: Page) {
        self.page = page;
        self.scrolled = 0;
        self.lines.clear();
        self.dead = None;
        self.why_slow.clear();
    }

    fn key_of_lines(&mut self, key: Key) -> Act {
        let all = match self.page {
            Page::Dead(_) => self.dead.as_ref().map_or(0, Vec::len),
            Page::Attention => {
                let findings = self.snapshot.findings.as_ref();
                findings.map_or(0, |findings| findings.lines().count())
            }
            Page::Queues | Page::Connections | Page::Queue(_) | Page::Follow(_) | Page::Help => {
                self.snapshot.connections.as_ref().map_or(0, Vec::len)
            }
        };
        // Fewer lines than a page has are on a screen only where keys for one line lead there.
        let last = all.saturating_sub(PAGE);
        let to = match key {
            Key::Up | Key::Char('k') => self.scrolled.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scrolled + 1,
            Key::PageUp => self.scrolled.saturating_sub(PAGE),
            Key::PageDown => (self.scrolled + PAGE).min(last.max(self.scrolled)),
            Key::Home => 0,
            Key::End => last,
            Key::Char(_) | Key::Enter | Key::Escape | Key::Backspace | Key::Interrupt => {
                return self.key_back(key);
            }
        };
        self.scrolled = to.min(all.saturating_sub(1));
        Act::Nothing
    }

    fn key_back(&mut self, key: Key) -> Act {
        match (key, &self.page) {
            (Key::Char('q'), _) => return Act::Quit,
            (Key::Escape | Key::Backspace, _)
            | (Key::Char('c'), Page::Connections)
            | (Key::Char('a'), Page::Attention)
            | (Key::Char('f'), Page::Follow(_))
            | (Key::Char('?'), Page::Help) => {
                let page = self.behind.pop().unwrap_or(Page::Queues);
                self.show(page);
            }
            (Key::Char('?'), _) => self.open(Page::Help),
            (_, Page::Queue(_) | Page::Dead(_)) => return self.key_of_subject(key),
            (Key::Char(_) | Key::Enter | Key::Interrupt, _) => {}
            (Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End, _) => {}
        }
        Act::Nothing
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
