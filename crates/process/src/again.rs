//! Listening sockets and client connections without state that outlive an ownership of the queues:
//! clients that come meanwhile wait instead of being refused.
//!
//! This process claims them again itself ([`stay`]). If it cannot let go of the ownership, a new one
//! of the same program with the same arguments replaces it ([`begin`]). To that they go as systemd
//! hands them to a service, with one variable beside that says what each was configured as. Without
//! it they are systemd's own (socket activation), and each is the listener of the address it is
//! bound to.

use std::env;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};
use listenfd::ListenFd;
use quintet_host::locked;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use crate::connections::Connections;
use crate::modes;

/// The addresses of the sockets, as configured, each followed by a newline.
const ADDRESSES: &str = "QUINTET_LISTENING";
/// Those of them whose socket files are systemd's.
const OF_SYSTEMD: &str = "QUINTET_OF_SYSTEMD";
/// In place of an address: the socket that the client connections are in.
const CONNECTIONS: &str = "connections";
/// The first of the descriptors that are handed on.
const FIRST: usize = 3;

/// Sockets that the next process gets, with their addresses as configured.
static KEPT: Mutex<Vec<(String, OwnedFd)>> = Mutex::new(Vec::new());
/// Client connections that it gets.
static GOING_ON: Mutex<Connections> = Mutex::new(Connections::new());
/// Sockets that the process before this, systemd, or an ownership of this process has left.
static LEFT: OnceLock<Mutex<Left>> = OnceLock::new();
/// Descriptors kept free for those that are handed on: they are replaced while other threads still
/// run, which must not find another file behind one of theirs.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
/// How long it is waited for what was started to end.
const CHILDREN: Duration = Duration::from_secs(1);
/// Held for good by the thread that replaces this process, and while it is decided to stay.
static GOING: Mutex<()> = Mutex::new(());
/// This process had to stop: no next one begins.
static STOPS: AtomicBool = AtomicBool::new(false);
/// Another process, or a later ownership, listens on the same sockets after this one.
static HANDS_ON: AtomicBool = AtomicBool::new(false);
/// Client connections are not handed on.
static CUTS: AtomicBool = AtomicBool::new(false);

struct Left {
    /// With the addresses they are configured as.
    sockets: Vec<(String, Handed)>,
    connections: Connections,
    /// They are systemd's, which goes on listening after this process.
    activated: bool,
    /// Addresses of socket files that are systemd's, in every ownership of this process.
    of_systemd: Vec<String>,
}

/// A listening socket that was open before this process began.
pub enum Handed {
    Tcp(std::net::TcpListener),
    /// With whether its file is systemd's: neither changed nor removed.
    Unix(std::os::unix::net::UnixListener, bool),
}

/// Keeps so many descriptors free, and one for the client connections. Before anything else is
/// opened.
///
/// # Errors
/// There are no more files to be had.
pub fn reserve(count: usize) -> std::io::Result<()> {
    let end = FIRST + count + 1;
    let is_one = |fd: &OwnedFd| usize::try_from(fd.as_raw_fd()).is_ok_and(|number| number < end);
    let null = OwnedFd::from(std::fs::File::open("/dev/null")?);
    let mut reserved = Vec::new();
    loop {
        let first = i32::try_from(FIRST).unwrap_or(i32::MAX);
        let next = fcntl_dupfd_cloexec(&null, first)?;
        if !is_one(&next) {
            break;
        }
        reserved.push(next);
    }
    // At the start it has the lowest number of all.
    reserved.extend(Some(null).filter(is_one));
    locked(&RESERVED).append(&mut reserved);
    Ok(())
}

/// From now on the next process gets this socket.
pub fn keep(address: String, socket: OwnedFd) {
    locked(&KEPT).push((address, socket));
}

/// The next process gets this connection of a client, which has no state: it came to the listener
/// of this protocol and bound address. False: it is closed, as there are too many or none is kept.
pub fn keep_connection(protocol: &str, address: &str, socket: OwnedFd) -> bool {
    let cuts = CUTS.load(Ordering::SeqCst);
    !cuts && locked(&GOING_ON).add(listener(protocol, address), socket)
}

/// Connections that the next process gets.
pub fn kept_connections() -> usize {
    locked(&GOING_ON).count()
}

/// Leaves the next process a word.
pub fn leave_word(word: String) {
    locked(&GOING_ON).word = Some(word);
}

/// The word that the process before this has left.
pub fn word_left() -> Option<String> {
    locked(LEFT.get_or_init(|| Mutex::new(Left::read())))
        .connections
        .word
        .take()
}

/// The client connections that the process before this had at a listener.
pub fn connections(protocol: &str, address: &str) -> Vec<OwnedFd> {
    let mut left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
    left.connections.take(&listener(protocol, address))
}

fn listener(protocol: &str, address: &str) -> String {
    format!("{protocol} {address}")
}

/// From now on socket files stay when this process closes its listeners: it will listen again.
/// `connections`: those without state are handed on as well.
pub fn hand_on(connections: bool) {
    CUTS.store(!connections, Ordering::SeqCst);
    HANDS_ON.store(true, Ordering::SeqCst);
}

/// Whether they stay.
pub fn hands_on() -> bool {
    HANDS_ON.load(Ordering::SeqCst)
}

/// This process goes on in place of a next one, and gets everything that was kept for that. The
/// listeners that had the sockets are closed.
pub fn stay() {
    let _decided = locked(&GOING);
    let kept = std::mem::take(&mut *locked(&KEPT));
    // Those of an earlier process had such numbers, and are closed.
    if let Err(error) = reserve(kept.len()) {
        tracing::warn!("descriptors for a next process are not kept free: {error}");
    }
    let mut left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
    let of_systemd = std::mem::take(&mut left.of_systemd);
    let sockets = kept.into_iter().map(|(address, socket)| {
        let handed = match address.starts_with("unix:") {
            true => Handed::Unix(socket.into(), of_systemd.contains(&address)),
            false => Handed::Tcp(socket.into()),
        };
        (address, handed)
    });
    *left = Left {
        sockets: sockets.collect(),
        connections: std::mem::take(&mut *locked(&GOING_ON)),
        activated: false,
        of_systemd,
    };
    HANDS_ON.store(false, Ordering::SeqCst);
    CUTS.store(false, Ordering::SeqCst);
}

/// Whether [`handed`] has a socket for `address`.
pub fn will_hand(address: &str) -> bool {
    let left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
    left.sockets.iter().any(|(one, _)| one == address)
}

/// The socket that the process before this, or systemd, had opened for `address`.
pub fn handed(address: &str) -> Option<Handed> {
    let mut left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
    let number = left.sockets.iter().position(|(one, _)| one == address)?;
    // In their order: several may be configured as the same port 0.
    Some(left.sockets.remove(number).1)
}

/// Looks whether every socket of systemd's is some listener's: a client of another would
/// wait for ever. Client connections of a listener that is no more are closed.
///
/// # Errors
/// One is not: says which.
pub fn all_claimed() -> anyhow::Result<()> {
    let mut left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
    left.connections.close();
    match left.sockets.first().filter(|_| left.activated) {
        None => Ok(()),
        Some((address, _)) => anyhow::bail!(
            "systemd passes a socket for {address}, but no listener has this address: use the \
             same address in ListenStream= and in the configuration"
        ),
    }
}

impl Left {
    fn read() -> Self {
        let addresses = env::var(ADDRESSES).ok();
        let activated = addresses.is_none();
        let addresses = addresses.unwrap_or_default();
        let mut configured = addresses.lines();
        let of_systemd = env::var(OF_SYSTEMD).unwrap_or_default();
        let mut of_systemd: Vec<String> = of_systemd.lines().map(str::to_owned).collect();
        let mut all = ListenFd::from_env();
        let (mut sockets, mut connections) = (Vec::new(), Connections::new());
        for number in 0..all.len() {
            let address = configured.next();
            if address == Some(CONNECTIONS) && !activated {
                if let Ok(Some(socket)) = all.take_unix_datagram(number) {
                    connections = Connections::receive(&socket);
                    // Its number is one of those that are kept free.
                    locked(&RESERVED).push(socket.into());
                }
                continue;
            }
            // One that is no TCP socket stays where it is.
            let taken = match all.take_tcp_listener(number) {
                Ok(socket) => Ok(socket.map(Handed::Tcp)),
                Err(_) => {
                    let socket = all.take_unix_listener(number);
                    socket.map(|socket| socket.map(|socket| Handed::Unix(socket, false)))
                }
            };
            match taken {
                Ok(Some(mut socket)) => {
                    let address = match address {
                        Some(address) => address.to_owned(),
                        None => socket.address(),
                    };
                    if let Handed::Unix(_, is_systemds) = &mut socket {
                        if activated {
                            of_systemd.push(address.clone());
                        }
                        *is_systemds = of_systemd.contains(&address);
                    }
                    socket.close_on_exec();
                    sockets.push((address, socket));
                }
                Ok(None) => {}
                Err(error) => {
                    let shown = address.unwrap_or("systemd");
                    tracing::warn!("cannot use the socket passed for {shown}: {error}");
                }
            }
        }
        Self {
            sockets,
            connections,
            activated,
            of_systemd,
        }
    }
}

impl Handed {
    /// Its bound address, as it would be configured; empty: nothing with a name.
    fn address(&self) -> String {
        match self {
            Handed::Tcp(socket) => socket.local_addr().map(|at| at.to_string()),
            Handed::Unix(socket, _) => socket.local_addr().map(|at| {
                let path = at.as_pathname();
                path.map_or_else(String::new, |path| format!("unix:{}", path.display()))
            }),
        }
        .unwrap_or_default()
    }

    fn close_on_exec(&self) {
        match self {
            Handed::Tcp(socket) => close_on_exec(socket),
            Handed::Unix(socket, _) => close_on_exec(socket),
        }
    }
}

/// Scripts get none of them.
fn close_on_exec(socket: &impl std::os::fd::AsFd) {
    if let Err(error) = fcntl_setfd(socket, FdFlags::CLOEXEC) {
        tracing::warn!("scripts inherit a listening socket: {error}");
    }
}

/// This process has to stop: from now on [`begin`] ends it, as its next process would not know.
pub fn stops() {
    STOPS.store(true, Ordering::SeqCst);
}

/// Ends this process's life at once, whatever its threads are doing, and begins another.
pub fn begin() -> ! {
    // What other threads would still do nobody waits for.
    let _for_good = locked(&GOING);
    go()
}

/// The same if that is `due`, which it is no longer where the process stays meanwhile.
pub fn begin_if(due: impl FnOnce() -> bool) {
    let _for_good = locked(&GOING);
    if due() {
        go()
    }
}

fn go() -> ! {
    end_children();
    if STOPS.load(Ordering::SeqCst) {
        tracing::info!("told to stop, this node does not begin again");
        std::process::exit(0);
    }
    let error = replace();
    tracing::error!("cannot begin again: {error}");
    eprintln!("quintet: cannot begin again: {error}");
    std::process::exit(1);
}

/// Ends what this process has started: the next one would not know that it runs, and who owns the
/// queues now starts its scripts anew.
pub fn end_children() {
    let mut ended = children();
    for (pid, leads) in &ended {
        let gone = match leads {
            true => kill_process_group(*pid, Signal::KILL),
            false => kill_process(*pid, Signal::KILL),
        };
        if let Err(error) = gone {
            tracing::debug!("cannot signal a script, which has ended: {error}");
        }
    }
    // Else they would stay as what nobody asks for.
    let began = Instant::now();
    while !ended.is_empty() && began.elapsed() < CHILDREN {
        ended.retain(|(pid, _)| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes this one has started, and whether each leads a group.
fn children() -> Vec<(Pid, bool)> {
    let own = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.parse::<i32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: state, parent, group.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(1);
        (fields.next()? == own).then_some(())?;
        let leads = fields.next()?.parse::<i32>().ok()? == number;
        Some((Pid::from_raw(number)?, leads))
    };
    all.filter_map(child).collect()
}

fn replace() -> std::io::Error {
    let program = match env::current_exe() {
        // It may have been replaced by a newer one, or be gone.
        Ok(path) if path.exists() => path,
        Ok(_) | Err(_) => "/proc/self/exe".into(),
    };
    let mut kept = std::mem::take(&mut *locked(&KEPT));
    match std::mem::take(&mut *locked(&GOING_ON)).send() {
        Ok(None) => {}
        Ok(Some(socket)) => kept.push((CONNECTIONS.to_owned(), socket.into())),
        Err(error) => tracing::warn!("client connections are closed: {error}"),
    }
    let mut args = env::args_os();
    let mut command = Command::new(program);
    command.arg0(args.next().unwrap_or_default()).args(args);
    let addresses: Vec<&str> = kept.iter().map(|(address, _)| address.as_str()).collect();
    let of_systemd = LEFT.get().map(|left| locked(left).of_systemd.join("\n"));
    command
        .env(ADDRESSES, addresses.join("\n"))
        .env(OF_SYSTEMD, of_systemd.unwrap_or_default())
        .env("LISTEN_FDS", kept.len().to_string())
        .env("LISTEN_PID", std::process::id().to_string());
    let mappings = kept.into_iter().enumerate().map(|(number, (_, socket))| {
        let child_fd = i32::try_from(FIRST + number).unwrap_or(i32::MAX);
        FdMapping {
            parent_fd: socket,
            child_fd,
        }
    });
    if let Err(error) = command.fd_mappings(mappings.collect()) {
        return std::io::Error::other(error);
    }
    // The new one is to learn what the operator had given.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(modes::initial_umask()));
    command.exec()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use quintet_config::Address;

    use super::*;
    use crate::Bound;

    #[test]
    fn a_process_that_was_told_to_stop_is_not_replaced() {
        const STOPPED: &str = "QUINTET_TEST_STOPPED";
        const REPLACED: i32 = 3;
        match env::var(STOPPED).ok().as_deref() {
            None => {}
            // This is its next process.
            Some(_) if env::var_os(ADDRESSES).is_some() => std::process::exit(REPLACED),
            Some("no") => begin(),
            Some(_) => {
                stops();
                begin()
            }
        }
        let ends = |stopped: &str| {
            let name = "again::tests::a_process_that_was_told_to_stop_is_not_replaced";
            let mut test = Command::new(env::current_exe().expect("this program"));
            let test = test.args(["--exact", name]).env(STOPPED, stopped);
            test.output().expect("it runs").status.code()
        };
        assert_eq!(ends("no"), Some(REPLACED));
        assert_eq!(ends("yes"), Some(0));
    }

    #[test]
    fn a_process_that_stays_claims_what_a_next_one_would_get() {
        let address = Address::local(0);
        let open = || [(); 3].map(|()| Bound::open(&address).expect("a port"));
        let ports = |all: &[Bound; 3]| all.each_ref().map(|one| one.address.clone());
        // systemd has opened one more.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let systemds = Address::Unix(path.clone());
        {
            let listener = UnixListener::bind(&path).expect("a socket");
            let mut left = locked(LEFT.get_or_init(|| Mutex::new(Left::read())));
            left.of_systemd.push(systemds.to_string());
            let handed = Handed::Unix(listener, true);
            left.sockets.push((systemds.to_string(), handed));
        }
        let activated = Bound::open(&systemds).expect("it is handed");
        keep(systemds.to_string(), activated.duplicate().expect("a file"));
        let before = open();
        for bound in &before {
            keep(address.to_string(), bound.duplicate().expect("a file"));
        }
        let (_client, server) = UnixStream::pair().expect("a pair");
        assert!(keep_connection("memcache", "a", server.into()));
        leave_word("b owns".to_owned());
        hand_on(true);
        let expected = ports(&before);
        drop((before, activated));
        begin_if(|| false);
        stay();
        assert!(!hands_on());
        drop(Bound::open(&systemds).expect("it was kept"));
        assert!(path.exists(), "systemd goes on listening there");
        assert_eq!(ports(&open()), expected, "in their order");
        assert_eq!(word_left().as_deref(), Some("b owns"));
        assert_eq!(connections("memcache", "a").len(), 1);
        assert_eq!(kept_connections(), 0);
        // A deposed owner closes them.
        let (_client, server) = UnixStream::pair().expect("a pair");
        hand_on(false);
        assert!(!keep_connection("memcache", "a", server.into()));
        stay();
        assert!(!will_hand(&address.to_string()));
    }
}
