//! Logins: what is known at once is answered at once; a password is checked by
//! a few threads of their own, as that takes long by design.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use anyhow::Result;
use quintet_auth::{Claim, Fits, Password, Throttle, proof_of_password};
use quintet_client::Entry;
use quintet_client::shown::plain;
use quintet_host::{locked, random, wall_ms};
use quintet_types::{Operation, Principal};
use quintet_wire::LoginRefused;

use super::Security;

/// Bytes of a name that are written down.
const NAME_SHOWN: usize = 128;

/// Somebody who got in.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    pub principal: Principal,
    /// The number of the password, secret or token it came with, or 0, see
    /// [`quintet_auth::Table::counts`].
    pub proof: u64,
    pub name: Arc<str>,
}

/// Somebody who says who it is.
#[derive(Default)]
pub struct Comes<'a> {
    pub name: &'a [u8],
    pub secret: &'a [u8],
    /// A unix socket has none.
    pub address: Option<IpAddr>,
    /// Where it comes in it is known, though no `[[user]]` has the name.
    pub own: bool,
    /// It says so again and again.
    pub with_each_request: bool,
}

pub(crate) type LoginResult = Result<LoggedIn, LoginRefused>;

/// How a login goes on.
pub enum Begun {
    Now(LoginResult),
    /// The answer comes later.
    Later,
}

/// Told what came of it, by one of the threads.
type Tell = Box<dyn FnOnce(LoginResult) + Send>;

/// A login that is looked at by one of the threads.
struct Job {
    security: Weak<Security>,
    name: Box<[u8]>,
    secret: Box<[u8]>,
    address: Option<IpAddr>,
    against: Password,
    /// The principal if the password matches; `None`: nobody, if no hook says else.
    is: Option<Principal>,
    /// No user has the name: a hook may know it.
    unknown: bool,
    /// It gets in unless a hook says no.
    own: bool,
    notify: Tell,
}

/// The memory between logins, and the way to the threads.
pub struct Checker {
    /// Start of the process, because remembered times count from it: the wall clock may be set
    /// back, by a year.
    began: Instant,
    throttle: Mutex<Throttle>,
    fits: Mutex<Fits>,
    jobs: SyncSender<Job>,
    inbox: Arc<Mutex<Receiver<Job>>>,
    threads_max: u64,
    /// Threads that run. They start with the first login that needs one.
    threads: Mutex<u64>,
}

impl Checker {
    /// For so many threads, for which so many logins may wait.
    ///
    /// # Errors
    /// The system has no random numbers to give.
    pub fn new(threads_max: u64, waiting_max: u64) -> Result<Self> {
        let waiting_max = usize::try_from(waiting_max).unwrap_or(usize::MAX);
        let (jobs, inbox) = sync_channel(waiting_max);
        Ok(Self {
            began: Instant::now(),
            throttle: Mutex::default(),
            fits: Mutex::new(Fits::new(random()?)),
            jobs,
            inbox: Arc::new(Mutex::new(inbox)),
            threads_max,
            threads: Mutex::default(),
        })
    }

    /// Starts the threads that do not run yet; false: none runs.
    fn start(&self) -> bool {
        let mut threads = locked(&self.threads);
        while *threads < self.threads_max {
            let inbox = Arc::clone(&self.inbox);
            let thread = std::thread::Builder::new().name(format!("login-{threads}"));
            if let Err(error) = thread.spawn(move || check_all(&inbox)) {
                tracing::error!("no thread to check a login: {error}");
                break;
            }
            *threads += 1;
        }
        *threads > 0
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_throttled(&self, address: Option<IpAddr>) -> bool {
        let may = |at| locked(&self.throttle).may_try(at, self.now_ms());
        address.is_some_and(|at| may(at).is_err())
    }
}

impl Security {
    /// Somebody says who it is. A later result goes to `notify`,
    /// from another thread.
    pub fn begin_login(
        self: &Arc<Self>,
        comes: &Comes<'_>,
        notify: impl FnOnce(LoginResult) + Send + 'static,
    ) -> Begun {
        let now = wall_ms();
        let checker = &self.auth.checker;
        let (name, secret, address) = (comes.name, comes.secret, comes.address);
        if checker.is_throttled(address) {
            return Begun::Now(self.end_login(comes, Err(LoginRefused::Throttled)));
        }
        let (against, is, unknown) = match self.auth.table().claim(name, secret, now) {
            Claim::Is(principal, proof) => {
                return Begun::Now(self.known_login(comes, principal, proof));
            }
            Claim::If(against, is) => (against, is, false),
            Claim::Unknown(_) if comes.own && !self.hooks.are_used() => {
                return Begun::Now(self.known_login(comes, self.auth.user_of(name), 0));
            }
            Claim::Unknown(against) => (against, None, true),
        };
        if let Some(principal) = is
            && locked(&checker.fits).know(&against, secret, checker.now_ms())
        {
            let proof = proof_of_password(&against);
            return Begun::Now(self.known_login(comes, principal, proof));
        }
        let job = Job {
            security: Arc::downgrade(self),
            name: name.into(),
            secret: secret.into(),
            address,
            against,
            is,
            unknown,
            own: comes.own,
            notify: Box::new(notify),
        };
        match checker.start() && checker.jobs.try_send(job).is_ok() {
            true => Begun::Later,
            false => Begun::Now(self.end_login(comes, Err(LoginRefused::Busy))),
        }
    }

    /// Somebody at `address` has shown whether it knows the password of a listener of
    /// this protocol, which is nobody's in particular.
    ///
    /// # Errors
    /// It does not, or too many there did not before.
    pub fn proved(
        &self,
        protocol: &str,
        address: Option<IpAddr>,
        met: bool,
    ) -> Result<(), LoginRefused> {
        let comes = Comes {
            name: protocol.as_bytes(),
            address,
            ..Comes::default()
        };
        let outcome = if self.auth.checker.is_throttled(address) {
            Err(LoginRefused::Throttled)
        } else if met {
            Ok((Principal::ANONYMOUS, 0))
        } else {
            Err(LoginRefused::Wrong)
        };
        self.end_login(&comes, outcome).map(|_| ())
    }

    /// Somebody at `address` shows a token and no name, as with each request.
    pub fn bear(&self, token: &[u8], address: Option<IpAddr>) -> LoginResult {
        let now = wall_ms();
        let table = self.auth.table();
        let throttled = self.auth.checker.is_throttled(address);
        let whose = match throttled {
            true => Err(LoginRefused::Throttled),
            false => table.bearer(token, now).ok_or(LoginRefused::Wrong),
        };
        let name = whose.ok().and_then(|(whose, _)| table.name_of(whose));
        let comes = Comes {
            name: name.as_deref().unwrap_or_default().as_bytes(),
            secret: token,
            address,
            with_each_request: true,
            ..Comes::default()
        };
        match whose {
            Ok((principal, proof)) => self.known_login(&comes, principal, proof),
            Err(refused) => self.end_login(&comes, Err(refused)),
        }
    }

    /// It is known at once who somebody is: where that is so with each of its
    /// requests nobody writes it down.
    fn known_login(&self, comes: &Comes<'_>, principal: Principal, proof: u64) -> LoginResult {
        match comes.with_each_request {
            true => Ok(LoggedIn {
                principal,
                proof,
                name: shown(comes.name).into(),
            }),
            false => self.end_login(comes, Ok((principal, proof))),
        }
    }

    /// Counts a login and says what came of it.
    fn end_login(
        &self,
        comes: &Comes<'_>,
        outcome: Result<(Principal, u64), LoginRefused>,
    ) -> LoginResult {
        let counts = &self.auth.counts;
        let (name, address) = (shown(comes.name), comes.address);
        let (count, result) = match outcome {
            Ok(_) => (&counts.logins, "ok"),
            Err(LoginRefused::Wrong) => (&counts.failed, "wrong"),
            Err(LoginRefused::Throttled) => (&counts.throttled, "throttled"),
            // Of too many connections is said when the login is over.
            Err(LoginRefused::Busy | LoginRefused::TooMany) => (&counts.busy, "busy"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Err(LoginRefused::Wrong) = outcome {
            self.quotas.failed(address);
        }
        if let Some(address) = address {
            let checker = &self.auth.checker;
            let mut throttle = locked(&checker.throttle);
            match outcome {
                Ok(_) => throttle.succeeded(address),
                Err(LoginRefused::Wrong) => throttle.failed(address, checker.now_ms()),
                // Not looked at, so it did not fail.
                Err(_) => {}
            }
        }
        // Of those that are not looked at there may be any number.
        if matches!(outcome, Ok(_) | Err(LoginRefused::Wrong)) {
            self.audit.write(&Entry {
                who: &name,
                from: address,
                result,
                ..Entry::of(Operation::Login)
            });
        }
        outcome.map(|(principal, proof)| LoggedIn {
            principal,
            proof,
            name: name.into(),
        })
    }
}

/// A name as it is written down.
fn shown(name: &[u8]) -> String {
    plain(&name[..name.len().min(NAME_SHOWN)])
}

/// One of the threads: checks what comes until nobody can bring anything.
fn check_all(inbox: &Mutex<Receiver<Job>>) {
    loop {
        // Only one waits in line; the others wait for the lock.
        let Ok(job) = locked(inbox).recv() else {
            return;
        };
        let Some(security) = job.security.upgrade() else {
            return;
        };
        let outcome = check(&security, &job);
        let comes = Comes {
            name: &job.name,
            secret: &job.secret,
            address: job.address,
            own: job.own,
            with_each_request: false,
        };
        let login_result = security.end_login(&comes, outcome);
        (job.notify)(login_result);
    }
}

fn check(security: &Security, job: &Job) -> Result<(Principal, u64), LoginRefused> {
    // Of many at once the first failures count for those behind them.
    if security.auth.checker.is_throttled(job.address) {
        return Err(LoginRefused::Throttled);
    }
    if job.unknown
        && let Ok(name) = std::str::from_utf8(&job.name)
    {
        let may = security.may_log_in(name, &job.secret);
        if may.unwrap_or(job.own) {
            return Ok((security.auth.user(name), 0));
        }
    }
    // Also where it lets nobody in: the time does not tell whether there is
    // such a user.
    let fits = job.against.fits(&job.secret);
    match job.is.filter(|_| fits) {
        Some(principal) => {
            let checker = &security.auth.checker;
            let mut fits = locked(&checker.fits);
            fits.learn(&job.against, &job.secret, checker.now_ms());
            Ok((principal, proof_of_password(&job.against)))
        }
        None => Err(LoginRefused::Wrong),
    }
}
