//! A thread's Lua state, and how its functions are called.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use mlua::{
    AnyUserData, ChunkMode, Error, IntoLuaMulti, Lua, MetaMethod, String as LuaString, UserData,
    UserDataMethods, Value,
};
use quintet_types::{ClientId, Ms, locked};

use crate::api::{self, Env};
use crate::error::HookError;
use crate::host::{Host, Level, Who};
use crate::meter::Meter;
use crate::program::Program;
use crate::register::{Registered, TimerSchedule};
use crate::sandbox;
use crate::step::{Step, Work};
use crate::subject::{Msg, Subject};
use crate::verdict::Returned;
use crate::waiting::Waiting;
use quintet_policy::{Event, Events};

/// The hooks of one thread. Global variables of a file are this state's own:
/// what threads share is in tables and counters.
pub struct HookState {
    pub(crate) program: Arc<Program>,
    pub(crate) env: Env,
    pub(crate) lua: Lua,
    pub(crate) subject: Arc<Mutex<Subject>>,
    pub(crate) msg: AnyUserData,
    pub(crate) conn: AnyUserData,
    who: Arc<Mutex<Who>>,
    pub(crate) registered: Registered,
    events: Events,
    /// When each timer is due next: those that are counted in engine time,
    /// those by the calendar by the wall clock.
    pub(crate) due: Vec<Ms>,
    /// The latest time of the wall clock the calendar was looked at.
    pub(crate) wall_seen: Ms,
    pub(crate) waiting: HashMap<(ClientId, bool), Waiting>,
    /// Memory ran out: the state is made anew before the next event.
    broken: AtomicBool,
    /// Which of its event's functions was called last.
    answered: AtomicUsize,
}

/// The userdata for who is behind an event.
struct Conn(Arc<Mutex<Who>>);

impl UserData for Conn {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::Index, |lua, this, field: LuaString| {
            let who = locked(&this.0);
            let text = |text: &str| lua.create_string(text).map(Value::String);
            match &*field.as_bytes() {
                b"id" => Ok(Value::Integer(
                    i64::try_from(who.connection).unwrap_or(i64::MAX),
                )),
                b"protocol" => text(who.protocol),
                b"peer" => text(&who.peer),
                b"user" => text(&who.user),
                b"voice" => Err(Error::runtime("voice is called protocol now")),
                _ => Err(Error::runtime(format!(
                    "a connection has no field {:?}; it has id, protocol, peer and user",
                    field.to_string_lossy()
                ))),
            }
        });
    }
}

impl HookState {
    /// A state of this program. `host` stays with it.
    ///
    /// # Errors
    /// The files fail to load.
    pub fn new(program: Arc<Program>, host: Box<dyn Host>) -> Result<Self, HookError> {
        let env = Env {
            work: Arc::new(Mutex::new(Work {
                host,
                caller: Default::default(),
                step: Step::default(),
                limits: program.limits,
                loading: None,
            })),
            meter: Arc::new(Meter::new(program.limits)),
            shared: Arc::clone(&program.shared),
        };
        let subject = Arc::new(Mutex::new(Subject::Gone));
        let who = Arc::new(Mutex::new(Who::default()));
        let made = make(&program, &env, &subject, &who)
            .map_err(|error| HookError::from_lua(&error, &program.names))?;
        let Made {
            lua,
            msg,
            conn,
            registered,
        } = made?;
        let mut state = Self {
            events: registered.events(),
            program,
            env,
            lua,
            subject,
            msg,
            conn,
            who,
            registered,
            due: Vec::new(),
            wall_seen: Ms(0),
            waiting: HashMap::new(),
            broken: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
        };
        state.set_timers();
        Ok(state)
    }

    /// The events that have functions.
    pub fn events(&self) -> Events {
        self.events
    }

    pub(crate) fn has(&self, event: Event) -> bool {
        self.events.has(event)
    }

    /// The program it was made from.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        locked(&self.env.work)
    }

    /// Engine time.
    pub(crate) fn now(&self) -> Ms {
        self.work().host.now()
    }

    pub(crate) fn set_timers(&mut self) {
        let (now, wall) = (self.now(), self.work().host.wall());
        self.wall_seen = wall;
        let timers = self.registered.timers.iter();
        self.due = timers
            .map(|timer| match &timer.when {
                TimerSchedule::Every(ms) => now + *ms,
                TimerSchedule::At(cron) => cron.after(wall),
            })
            .collect();
    }

    /// Begins what is done on behalf of `who`.
    pub(crate) fn enter(&mut self, who: &Who) {
        if self.broken.swap(false, Relaxed) {
            self.make_anew();
        }
        {
            let mut known = locked(&self.who);
            if known.connection != who.connection || !Arc::ptr_eq(&known.user, &who.user) {
                *known = who.clone();
            }
        }
        let mut work = self.work();
        work.caller = who.caller;
        work.step.clear();
    }

    /// Memory is not trusted after it ran out: everything but tables, counters
    /// and timers' times is as after a start.
    fn make_anew(&mut self) {
        let made = make(&self.program, &self.env, &self.subject, &self.who);
        if let Ok(Ok(made)) = made {
            self.lua = made.lua;
            self.msg = made.msg;
            self.conn = made.conn;
            self.registered = made.registered;
            // A file may not register the same each time.
            if self.registered.timers.len() != self.due.len() {
                self.set_timers();
            }
        }
    }

    /// Calls the functions of an event in their order until one answers;
    /// `None`: none did.
    pub(crate) fn call<A: IntoLuaMulti + Copy>(
        &self,
        event: Event,
        args: A,
    ) -> Result<Option<Returned>, HookError> {
        for (index, function) in self.registered.functions[event as usize].iter().enumerate() {
            let returned = self.call_one(event, function, args)?;
            self.answered.store(index, Relaxed);
            if !returned.0.is_nil() {
                return Ok(Some(returned));
            }
        }
        Ok(None)
    }

    /// Calls them, and reads what they answer; without an answer it is the default.
    pub(crate) fn verdict<A: IntoLuaMulti + Copy, T: Default>(
        &self,
        event: Event,
        args: A,
        read: impl FnOnce(Returned) -> Result<T, String>,
    ) -> Result<T, HookError> {
        match self.call(event, args)? {
            Some(returned) => self.judged(event, read(returned)),
            None => Ok(T::default()),
        }
    }

    pub(crate) fn call_one<A: IntoLuaMulti>(
        &self,
        event: Event,
        function: &mlua::Function,
        args: A,
    ) -> Result<Returned, HookError> {
        let meter = &self.env.meter;
        let began = meter.elapsed_ns();
        meter.begin(began);
        let result = function.call::<Returned>(args);
        let stopped = meter.end();
        self.env
            .shared
            .called(event, meter.elapsed_ns().saturating_sub(began));
        match (result, stopped) {
            (Ok(returned), None) => Ok(returned),
            (result, Some(stop)) => {
                let text = stop.text(&self.program.limits);
                let place = result
                    .err()
                    .map(|error| HookError::from_lua(&error, &self.program.names));
                Err(HookError {
                    text: format!("{} {text}", event.name()),
                    ..place.unwrap_or_else(|| HookError::of_file("", ""))
                })
            }
            (Err(error), None) => {
                if is_memory(&error) {
                    self.broken.store(true, Relaxed);
                }
                Err(HookError::from_lua(&error, &self.program.names))
            }
        }
    }

    /// A verdict's text as an error of the event.
    pub(crate) fn judged<T>(
        &self,
        event: Event,
        verdict: Result<T, String>,
    ) -> Result<T, HookError> {
        verdict.map_err(|text| {
            let text = if text.starts_with(event.name()) {
                text
            } else {
                format!("{}: {text}", event.name())
            };
            let functions = &self.registered.functions[event as usize];
            match functions.get(self.answered.load(Relaxed)) {
                Some(function) => {
                    let info = function.info();
                    HookError {
                        file: info.short_src.unwrap_or_default(),
                        line: info
                            .line_defined
                            .and_then(|line| u32::try_from(line).ok())
                            .unwrap_or(0),
                        text,
                    }
                }
                None => self.blamed(text),
            }
        })
    }

    /// An error of the program as a whole.
    pub(crate) fn blamed(&self, text: String) -> HookError {
        let file = self.program.names.first();
        HookError::of_file(file.map_or("", String::as_str), text)
    }

    /// Notes and logs that an event's function failed.
    pub(crate) fn report(&self, event: Event, error: &HookError) {
        let now = self.now();
        if let Some(line) = self.env.shared.failed(event, error, now) {
            self.work().host.log(Level::Error, &line);
        }
    }

    /// Puts a message before the functions while `run` runs, and takes it back
    /// as they left it.
    pub(crate) fn about<R>(&self, subject: Subject, run: impl FnOnce(&Self) -> R) -> (R, Subject) {
        *locked(&self.subject) = subject;
        let result = run(self);
        (result, std::mem::take(&mut *locked(&self.subject)))
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other is about something else"
)]
fn is_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => is_memory(cause),
        _ => false,
    }
}

struct Made {
    lua: Lua,
    msg: AnyUserData,
    conn: AnyUserData,
    registered: Registered,
}

/// Makes a Lua state and loads the program's files into it.
fn make(
    program: &Program,
    env: &Env,
    subject: &Arc<Mutex<Subject>>,
    who: &Arc<Mutex<Who>>,
) -> mlua::Result<Result<Made, HookError>> {
    let work = Arc::clone(&env.work);
    let note = move |text: &str| locked(&work).host.log(Level::Info, text);
    let lua = sandbox::open(&program.limits, &env.meter, note)?;
    let msg = lua.create_userdata(Msg(Arc::clone(subject)))?;
    let conn = lua.create_userdata(Conn(Arc::clone(who)))?;
    api::install(&lua, env)?;
    locked(&env.work).loading = Some(Registered::default());
    let mut loaded = Ok(());
    for source in &program.sources {
        env.meter.begin(env.meter.elapsed_ns());
        let chunk = lua
            .load(&source.text[..])
            .set_name(format!("={}", source.name))
            .set_mode(ChunkMode::Text);
        let result = chunk.exec();
        let stopped = env.meter.end();
        loaded = match (result, stopped) {
            (Ok(()), None) => Ok(()),
            (result, Some(stop)) => {
                let place = result
                    .err()
                    .map(|error| HookError::from_lua(&error, &program.names));
                Err(HookError {
                    file: source.name.clone(),
                    line: place.map_or(0, |place| place.line),
                    text: format!("the load {}", stop.text(&program.limits)),
                })
            }
            (Err(error), None) => {
                let mut error = HookError::from_lua(&error, &program.names);
                if error.file.is_empty() {
                    error.file.clone_from(&source.name);
                }
                Err(error)
            }
        };
        if loaded.is_ok() {
            let mut work = locked(&env.work);
            if let Some(registered) = &mut work.loading {
                registered.take_globals(&lua)?;
            }
        } else {
            break;
        }
    }
    let registered = locked(&env.work).loading.take().unwrap_or_default();
    Ok(loaded.map(|()| Made {
        lua,
        msg,
        conn,
        registered,
    }))
}
