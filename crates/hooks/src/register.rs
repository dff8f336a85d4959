//! Registration: the events that a hook file wants to be called for.

use mlua::{Function, Lua, Result, Table, Value};

use quintet_policy::Cron;
use quintet_policy::{Event, Events};

/// Functions by what they are called for.
#[derive(Default)]
pub(crate) struct Registered {
    pub(crate) functions: [Vec<Function>; Event::COUNT],
    pub(crate) timers: Vec<Timer>,
    /// Added commands: the word, and its function.
    pub(crate) commands: Vec<(Box<[u8]>, Function)>,
}

/// A function that time calls.
pub(crate) struct Timer {
    pub(crate) when: TimerSchedule,
    pub(crate) function: Function,
}

/// When a timer is due.
pub(crate) enum TimerSchedule {
    /// Every so many ms.
    Every(u64),
    /// By the calendar.
    At(Cron),
}

impl Registered {
    /// The events that have functions.
    pub(crate) fn events(&self) -> Events {
        let mut events = Events::default();
        for event in Event::ALL {
            if !self.functions[event as usize].is_empty() {
                events.insert(event);
            }
        }
        if !self.timers.is_empty() {
            events.insert(Event::Timer);
        }
        if !self.commands.is_empty() {
            events.insert(Event::Added);
        }
        events
    }

    /// Takes the global functions that are named after events, so that the
    /// next file can have its own.
    pub(crate) fn take_globals(&mut self, lua: &Lua) -> Result<()> {
        let globals: Table = lua.globals();
        for event in Event::ALL {
            if matches!(event, Event::Timer | Event::Added) {
                continue;
            }
            if let Value::Function(function) = globals.raw_get(event.name())? {
                self.functions[event as usize].push(function);
                globals.raw_set(event.name(), Value::Nil)?;
            }
        }
        Ok(())
    }
}
