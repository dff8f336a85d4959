//! Clients and their rights: the table in force, and logins.

mod gate;
mod login;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use anyhow::{Result, anyhow};
use quintet_auth::{Accounts, Register, Right, Rights, ShardPermits, Table};
use quintet_client::AuditLog;
use quintet_config::{Address, Config, Listen, Served, http, open_to_all, sqs};
use quintet_host::{Core, locked, wall_ms};
use quintet_types::{Name, Permits, Principal, Verb};

use crate::hooks::Hooks;
use crate::quotas::{Limited, Meter, Quotas};

use quintet_wire::Logins;

pub use gate::HttpGate;
pub(crate) use login::{Begun, Checker, Comes, LoginResult};

/// Clients, their rights and usage, and the audit.
pub struct Security {
    pub core: Arc<Core>,
    pub hooks: Arc<Hooks>,
    pub auth: Auth,
    pub quotas: Arc<Quotas>,
    pub audit: Arc<dyn AuditLog>,
}

impl Security {
    /// Gives the shards the table in force, and counts queues in the accounts of the quotas.
    pub fn enforce(&self) {
        let table = self.auth.table();
        let quotas = Arc::clone(&self.quotas);
        let accounts: Arc<Accounts> = Arc::new(move |maker: &[u8]| quotas.account(maker));
        self.core.set_permits(|| {
            let permits = ShardPermits::new(Arc::clone(&table)).counting(Arc::clone(&accounts));
            let permits = || Box::new(permits) as Box<dyn Permits>;
            table.is_used().then(permits)
        });
    }

    /// A connection is this user's from now on, and counts as one of it.
    ///
    /// # Errors
    /// It is one too many.
    pub fn count_as(&self, meter: &mut Meter, user: Principal) -> Result<(), Limited> {
        if !self.auth.is_used() {
            return Ok(());
        }
        let name = self.auth.table().name_of(user);
        self.quotas.become_of(meter, user, name)
    }

    /// `auth`: whether somebody who comes in by HTTP may; `None`: no hook says.
    pub fn may_log_in(&self, user: &str, secret: &[u8]) -> Option<bool> {
        self.hooks.may_log_in(&self.core, user, secret)
    }
}

/// Users, and their ways to log in.
pub struct Auth {
    register: Mutex<Register>,
    table: RwLock<Arc<Table>>,
    /// As the table says; looked at with every request.
    used: AtomicBool,
    lets_anonymous: AtomicBool,
    pub checker: Checker,
    pub counts: AuthCounts,
}

/// Numbers of logins and errors since the start.
#[derive(Default)]
pub struct AuthCounts {
    pub logins: AtomicU64,
    pub failed: AtomicU64,
    pub throttled: AtomicU64,
    pub busy: AtomicU64,
    /// Server commands of clients without the right.
    pub forbidden: AtomicU64,
}

impl Auth {
    /// By the configuration.
    ///
    /// # Errors
    /// All that is wrong with its users, grants and listeners.
    pub fn new(config: &Config, path: Option<&std::path::Path>) -> Result<Self> {
        let mut register = Register::default();
        let table = read(config, path, &mut register).map_err(|why| anyhow!(why))?;
        Ok(Self {
            used: AtomicBool::new(table.is_used()),
            lets_anonymous: AtomicBool::new(table.lets_anonymous()),
            register: Mutex::new(register),
            table: RwLock::new(Arc::new(table)),
            checker: Checker::new(config.login_threads, config.logins_waiting_max)?,
            counts: AuthCounts::default(),
        })
    }

    /// Checks the users, grants and listeners of a configuration.
    ///
    /// # Errors
    /// As [`Auth::new`].
    pub fn check(config: &Config, path: Option<&std::path::Path>) -> Result<()> {
        let table = read(config, path, &mut Register::default());
        table.map(drop).map_err(|why| anyhow!(why))
    }

    /// By a newer configuration. `by` is who wants it, if that is a client.
    ///
    /// # Errors
    /// All that is wrong; what is in force stays.
    pub fn reload(
        &self,
        config: &Config,
        path: Option<&std::path::Path>,
        by: Option<Principal>,
    ) -> Result<(), String> {
        let mut register = locked(&self.register);
        let mut tried = register.clone();
        let table = read(config, path, &mut tried)?;
        if let Some(by) = by
            && !table.everywhere(by).has(Right::Server)
        {
            return Err(
                "the new configuration takes the right \"server\" from the user of this reload: \
                 use SIGHUP to reload it all the same"
                    .to_owned(),
            );
        }
        *register = tried;
        self.used.store(table.is_used(), Ordering::Relaxed);
        self.lets_anonymous
            .store(table.lets_anonymous(), Ordering::Relaxed);
        *self
            .table
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(table);
        Ok(())
    }

    /// True if rights are looked at at all.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Users and grants as last read. A reload does not change the returned table.
    pub fn table(&self) -> Arc<Table> {
        let table = self.table.read();
        Arc::clone(&table.unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Whether a connection may, or has to, say who it is. `hooked`: a hook
    /// knows users.
    #[inline]
    pub fn logins(&self, principal: Principal, hooked: bool) -> Logins {
        if !self.used.load(Ordering::Relaxed) {
            return match hooked {
                true => Logins::Open,
                false => Logins::Off,
            };
        }
        match principal {
            Principal::ANONYMOUS if !self.lets_anonymous.load(Ordering::Relaxed) => Logins::Needed,
            _ => Logins::Open,
        }
    }

    /// True if `principal` may ask the server itself.
    pub fn may_server(&self, principal: Principal) -> bool {
        self.may_one_of(principal, &[Right::Server])
    }

    /// True if `principal` may read the server's numbers.
    pub fn may_read_metrics(&self, principal: Principal) -> bool {
        self.may_one_of(principal, &[Right::Metrics, Right::Server])
    }

    /// True if `principal` has one of these rights everywhere; counts it if not.
    fn may_one_of(&self, principal: Principal, rights: &[Right]) -> bool {
        let has = |has: Rights| rights.iter().any(|right| has.has(*right));
        let may = !self.is_used() || has(self.table().everywhere(principal));
        if !may {
            self.counts.forbidden.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// True if a login still counts, see [`Table::counts`].
    pub fn counts(&self, principal: Principal, proof: u64) -> bool {
        !self.is_used() || self.table().counts(principal, proof, wall_ms())
    }

    /// True if `principal` may do this to the messages of `queue`.
    pub fn may(&self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        !self.used.load(Ordering::Relaxed) || self.table().may(principal, verb, queue.as_bytes())
    }

    /// The number of a name that need not be text.
    pub fn user_of(&self, name: &[u8]) -> Principal {
        std::str::from_utf8(name).map_or(Principal::ANONYMOUS, |name| self.user(name))
    }

    /// The number of a listener's user; anonymous if there is none, or none any
    /// more.
    pub fn user(&self, name: &str) -> Principal {
        let known = self.table().principal(name);
        known.unwrap_or(Principal::ANONYMOUS)
    }
}

fn read(
    config: &Config,
    path: Option<&std::path::Path>,
    register: &mut Register,
) -> Result<Table, String> {
    let mut wrong = Vec::new();
    if config
        .users
        .iter()
        .any(quintet_config::UserTable::has_hashes)
    {
        wrong.extend(path.and_then(open_to_all));
    }
    let mut mistakes = Vec::new();
    let users: Vec<_> = (config.users.iter().enumerate())
        .map(|(row, user)| user.user(row, &mut mistakes))
        .collect();
    let grants: Vec<_> = (config.grants.iter().enumerate())
        .map(|(row, grant)| grant.grant(row, &mut mistakes))
        .collect();
    wrong.extend(mistakes.iter().map(|mistake| config.about(mistake)));
    let table = register.table(&users, &grants, config.names_users_elsewhere());
    let table = match table {
        Ok(table) => table,
        Err(error) => {
            wrong.extend(error.0.iter().map(|mistake| config.about(mistake)));
            return Err(wrong.join("; "));
        }
    };
    for listen in &config.listen {
        if !listen.user.is_empty() && table.principal(&listen.user).is_none() {
            let protocol = listen.served.name();
            wrong.push(format!(
                "[[listen]] {protocol}: user = \"{}\" names no [[user]]",
                listen.user
            ));
        }
        wrong.extend(exposed(config, listen, &table));
    }
    match wrong.is_empty() {
        true => Ok(table),
        false => Err(wrong.join("; ")),
    }
}

/// True if clients of this protocol can say who they are.
fn has_logins(served: Served) -> bool {
    let names = [http::NAME, sqs::NAME, "memcache", "beanstalk", "lineup"];
    names.contains(&served.name())
}

/// Why a listener must not be opened: others than this machine reach it, and
/// nobody has to say who it is.
fn exposed(config: &Config, listen: &Listen, table: &Table) -> Option<String> {
    let Address::Tcp(at) = &listen.address else {
        return None;
    };
    // What is wrong with its TLS is said where the listener is opened.
    let tls = config.tls_of(listen).ok().flatten();
    let shows_certificate = tls.is_some_and(|tls| tls.client_ca.is_some());
    let requested = !listen.user.is_empty()
        || shows_certificate
        || listen.has_users_option()
        || table.is_used() && !table.lets_anonymous() && has_logins(listen.served);
    if at.ip().to_canonical().is_loopback() || listen.insecure || requested {
        return None;
    }
    let protocol = listen.served.name();
    let login = match has_logins(listen.served) {
        true => "add a [[user]] who logs in and a [[grant]], ",
        false => "",
    };
    let shorthand = match listen.served {
        Served::Http => "give users = \"NAME:PASSWORD\", ",
        Served::Sqs => "give users = \"KEYID:SECRET\", ",
        Served::Protocol(_) => "",
    };
    Some(format!(
        "{protocol} on {at} has no login, so each client that reaches it could put, take and \
         delete messages. Choose one: {login}{shorthand}set user = \"NAME\" for all clients of \
         this listener, require certificates with tls_client_ca, or listen on 127.0.0.1. If only \
         trusted clients reach it, or a proxy asks for logins, set insecure = true (--listen \
         {protocol}={at},insecure)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_config::{CommandLine, load};

    fn config(text: &str) -> Config {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("quintet.toml");
        std::fs::write(&path, text).expect("written");
        let command_line = CommandLine {
            config: Some(path),
            ..CommandLine::default()
        };
        load(&command_line).expect("read")
    }

    #[test]
    fn a_listener_that_others_reach_needs_a_user() {
        let ann = "[[user]]\nname = 'ann'\n";
        let cert = "tls_cert = 'c'\ntls_key = 'k'\n";
        let open = |protocol: &str, more: &str| {
            format!("[[listen]]\nprotocol = '{protocol}'\naddress = '0.0.0.0:0'\n{more}\n")
        };
        for protocol in Served::all().map(Served::name) {
            let refused = Auth::new(&config(&open(protocol, "")), None);
            let why = refused.err().expect("refused").to_string();
            assert!(
                why.contains(protocol) && why.contains("insecure = true"),
                "{why}"
            );
            for (text, fine) in [
                (open(protocol, "insecure = true"), true),
                (format!("{ann}{}", open(protocol, "user = 'ann'")), true),
                (open(protocol, "user = 'ann'"), false),
                (
                    format!("{ann}{}", open(protocol, "")),
                    !matches!(protocol, "jobqueue" | "pinpriq" | "faktory"),
                ),
                (
                    format!(
                        "{ann}[[grant]]\nuser = 'anonymous'\nqueues = ['*']\nrights = ['put']\n{}",
                        open(protocol, "")
                    ),
                    false,
                ),
                (open(protocol, &format!("{cert}tls_client_ca = 'ca'")), true),
                (open(protocol, cert), false),
                (open(protocol, "").replace("0.0.0.0", "[::1]"), true),
                (open(protocol, "").replace("0.0.0.0", "[::]"), false),
            ] {
                let made = Auth::new(&config(&text), None);
                assert_eq!(made.is_ok(), fine, "{text}: {:?}", made.err());
            }
        }
    }

    #[test]
    fn one_error_has_all_mistakes() {
        let text = "[[user]]\nname = 'ann'\npassword = 'hush'\n\
                    [[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = ['put', 'fly']\n\
                    [[grant]]\ngroup = 'none'\nqueues = ['*']\nrights = ['put']\n\
                    [[user]]\npassword_file = '/nowhere/at all'\n\
                    [[listen]]\nprotocol = 'lineup'\naddress = '0'\nuser = 'cyd'\n";
        let why = Auth::new(&config(text), None)
            .err()
            .expect("refused")
            .to_string();
        for says in [
            "line 3: in [[user]] ann: password takes a hash as `quintet passwd` prints it",
            "line 5: in [[grant]]: user takes the name of a [[user]] or \"anonymous\"; not \"bob\"",
            "line 7: in [[grant]]: rights takes put, take",
            "; not \"fly\"",
            "line 9: in [[grant]]: group takes a group that a [[user]] is in; not \"none\"",
            "line 12: in [[user]]: name takes 1 to 128 printable",
            "line 13: in [[user]]: password_file /nowhere/at all: No such file",
        ] {
            assert!(why.contains(says), "{says}: {why}");
        }
        assert!(!why.contains("hush"), "{why}");
    }

    #[test]
    fn a_reload_does_not_lock_out_its_own_client() {
        let with = |rights: &str| {
            config(&format!(
                "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\nrights = \
                 [{rights}]"
            ))
        };
        let auth = Auth::new(&with("'server'"), None).expect("made");
        let ann = auth.user("ann");
        assert!(auth.may_server(ann));
        let kept = auth.reload(&with("'put'"), None, Some(ann));
        assert!(kept.is_err_and(|why| why.contains("SIGHUP")));
        assert!(auth.may_server(ann));
        auth.reload(&with("'put'"), None, None)
            .expect("by a signal");
        assert!(!auth.may_server(ann));
        assert_eq!(auth.counts.forbidden.load(Ordering::Relaxed), 1);
    }
}
