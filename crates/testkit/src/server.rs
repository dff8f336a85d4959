//! The real binary on a data directory.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::{self, Reply};
use crate::{Addresses, Client, Connection, PATIENCE, Protocol, eventually, quintet, text};

const READY: &str = "quintet ready";

/// Settings of every server under test: production sizes would write 192 MiB at each start.
const SMALL: [(&str, &str); 2] = [("segment_bytes", "'4MiB'"), ("spare_segments", "1")];

/// This configuration with small files, as far as it sets no others.
fn small_files(text: &str) -> String {
    let mut config = String::new();
    for (key, value) in SMALL {
        if !text.lines().any(|line| line.starts_with(key)) {
            config += &format!("{key} = {value}\n");
        }
    }
    config + text
}

/// A data directory, with room for files beside it, that goes with this value.
pub struct Data {
    path: PathBuf,
    _folder: TempDir,
}

impl Data {
    /// Nothing is made yet but the folder around it.
    pub fn fresh() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            path: folder.path().join("data"),
            _folder: folder,
        }
    }
}

impl Deref for Data {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Data {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<OsStr> for Data {
    fn as_ref(&self) -> &OsStr {
        self.path.as_ref()
    }
}

/// A server process.
pub struct Server {
    pub child: Child,
    /// The lines it printed and that were read.
    pub lines: Vec<String>,
    pub data: PathBuf,
    printed: Mutex<Receiver<String>>,
    log: Option<(PathBuf, u64)>,
    own: Option<Data>,
}

/// Options of a start.
#[derive(Clone, Copy, Default)]
pub struct Start<'a> {
    pub sync: Option<&'a str>,
    /// Listeners; none: one memcache listener on a free port.
    pub listen: &'a [&'a str],
    /// Text of a configuration file.
    pub config: Option<&'a str>,
}

impl<'a> Start<'a> {
    /// With this configuration.
    pub fn of(config: &'a str) -> Self {
        Self::default().config(config)
    }

    /// Sets the text of the configuration file.
    pub fn config(mut self, config: &'a str) -> Self {
        self.config = Some(config);
        self
    }

    /// Sets when the log is synced, as `--sync` takes it.
    pub fn sync(mut self, sync: &'a str) -> Self {
        self.sync = Some(sync);
        self
    }

    /// Sets the listeners, as `--listen` takes them.
    pub fn listen(mut self, listen: &'a [&'a str]) -> Self {
        self.listen = listen;
        self
    }

    /// A server on this data directory.
    pub fn serve_at(self, data: &Path) -> Server {
        Server::start_with(data, self)
    }

    /// A server on a directory of its own.
    pub fn serve(self) -> Server {
        Server::in_folder(|data| self.serve_at(data))
    }

    /// The same with the listeners of the configuration only.
    pub fn serve_as_configured(self) -> Server {
        Server::in_folder(|data| Server::start_as_configured(data, self))
    }

    /// Runs a server that does not start, to its end.
    pub fn output(self, data: &Path) -> Output {
        let output = Server::command(data, &self).output();
        output.expect("the binary starts")
    }

    /// The same as [`Start::serve`], with its standard error in a file for [`Server::stderr_text`].
    pub fn serve_logged(self) -> Server {
        Server::in_folder(|data| Server::start_logged(data, Server::command(data, &self)))
    }
}

impl Server {
    /// A server with defaults on a directory of its own.
    pub fn fresh() -> Self {
        Start::default().serve()
    }

    fn in_folder(start: impl FnOnce(&Path) -> Self) -> Self {
        let data = Data::fresh();
        let mut server = start(&data);
        server.own = Some(data);
        server
    }

    /// Starts with defaults.
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, Start::default())
    }

    /// Starts with these options.
    pub fn start_with(data: &Path, start: Start<'_>) -> Self {
        Self::await_ready(data, Self::command(data, &start))
    }

    /// Starts with the listeners of the configuration file only.
    pub fn start_as_configured(data: &Path, start: Start<'_>) -> Self {
        Self::await_ready(data, Self::command_as_configured(data, &start))
    }

    /// Starts under these faults.
    pub fn start_under(faults: &quintet_faults::Faults, data: &Path, start: &Start<'_>) -> Self {
        let mut command = Self::command(data, start);
        faults.attach(&mut command);
        let server = Self::await_ready(data, command);
        assert!(faults.is_attached(), "the library was not loaded");
        server
    }

    /// Starts with its standard error in a file, for [`Server::stderr_text`].
    pub fn start_logged(data: &Path, command: Command) -> Self {
        let log = data.with_extension("stderr");
        let mut server = Self::spawn_logged(data, command, &log).expect("the binary starts");
        let ended = server.try_ready().expect("ready or ended");
        assert!(ended.is_none(), "not ready: {}", server.stderr_text());
        server
    }

    /// Runs the command of a server until it is ready.
    pub fn await_ready(data: &Path, command: Command) -> Self {
        Self::ready_or_ended(data, command)
            .unwrap_or_else(|(status, lines)| panic!("not ready: {status} after {lines:?}"))
    }

    /// The server, or how it ended before it was ready, and what it printed.
    pub fn ready_or_ended(
        data: &Path,
        command: Command,
    ) -> Result<Self, (ExitStatus, Vec<String>)> {
        let mut server = Self::spawn(data, command).expect("the binary starts");
        match server.try_ready().expect("ready or ended") {
            None => Ok(server),
            Some(status) => Err((status, std::mem::take(&mut server.lines))),
        }
    }

    /// Starts the command, and does not wait.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(data: &Path, mut command: Command) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let (sender, printed) = channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            lines: Vec::new(),
            data: data.to_owned(),
            printed: Mutex::new(printed),
            log: None,
            own: None,
        })
    }

    /// Starts the command with its standard error behind what is in `log`, and does not wait.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn_logged(data: &Path, mut command: Command, log: &Path) -> io::Result<Self> {
        let log = log_to(&mut command, log)?;
        let mut server = Self::spawn(data, command)?;
        server.log = Some(log);
        Ok(server)
    }

    /// Waits until it is ready, or has ended with this status before.
    ///
    /// # Errors
    /// Neither comes in time.
    pub fn try_ready(&mut self) -> io::Result<Option<ExitStatus>> {
        match self.find_line(READY)? {
            Some(_) => Ok(None),
            None => self.child.wait().map(Some),
        }
    }

    /// The command of a start, whose configuration it writes beside the data directory.
    pub fn command(data: &Path, start: &Start<'_>) -> Command {
        Self::command_at(data, &beside(data), start)
    }

    /// The same with its configuration in this file.
    pub fn command_at(data: &Path, config: &Path, start: &Start<'_>) -> Command {
        let mut command = serve(data, config, start);
        let listen = match start.listen {
            [] => &["memcache=127.0.0.1:0"],
            some => some,
        };
        for listen in listen {
            command.args(["--listen", listen]);
        }
        command
    }

    /// The same with the listeners of the configuration only.
    pub fn command_as_configured(data: &Path, start: &Start<'_>) -> Command {
        serve(data, &beside(data), start)
    }

    /// Replaces its configuration, for a reload or the next start.
    pub fn configure(&self, text: &str) {
        configure(&beside(&self.data), text);
    }

    /// The address of the first listener.
    pub fn address(&self) -> &str {
        let line = self.lines.iter().find(|l| l.starts_with("listening "));
        let address = line.and_then(|line| line.split(' ').nth(2));
        address.expect("a listener")
    }

    /// A connection to the first listener.
    pub fn client(&self) -> Client {
        Client::tcp(self.address())
    }

    /// The address of the first listener of this protocol.
    pub fn address_of(&self, protocol: &str) -> &str {
        let mut addresses = self.addresses_of(protocol);
        addresses.next().expect("a listener of that protocol")
    }

    /// The addresses of all listeners of this protocol.
    pub fn addresses_of(&self, protocol: &str) -> impl Iterator<Item = &str> {
        let start = format!("listening {protocol} ");
        let lines = self.lines.iter();
        lines.filter_map(move |line| line.strip_prefix(start.as_str()))
    }

    /// The addresses of the first listener of every protocol.
    pub fn addresses(&self, binary: &Path) -> Addresses {
        let mut addresses = Addresses::new(binary, &self.data);
        for protocol in Protocol::ALL {
            if let Some(address) = self.addresses_of(protocol.name()).next() {
                addresses.set(protocol, address);
            }
        }
        addresses
    }

    /// A connection to the listener of this protocol.
    pub fn client_of(&self, protocol: &str) -> Client {
        Client::tcp(self.address_of(protocol))
    }

    /// A request like `GET /path`; `headers` end in CR LF each.
    pub fn ask(&self, what: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        let connection = Connection::tcp(self.address_of("http"), PATIENCE);
        http::ask(connection.expect("connected"), what, headers, body.as_ref()).expect("a reply")
    }

    /// Output of a command, its standard error, and its exit code.
    #[track_caller]
    pub fn outputs(&self, args: &[&str]) -> (String, String, i32) {
        let done = self.run(args);
        let code = done.status.code().expect("it ended by itself");
        (text(&done.stdout), text(&done.stderr), code)
    }

    /// Output of a command that succeeds.
    #[track_caller]
    pub fn printed(&self, args: &[&str]) -> String {
        let (out, error, code) = self.outputs(args);
        assert_eq!(code, 0, "{args:?}: {out}{error}");
        out
    }

    /// A whole JSON document that a command prints.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.run(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"))
    }

    /// A document of `/api/v1` from the control socket, without the process of a command: waits
    /// ask for many of them.
    fn document(&self, path: &str) -> io::Result<serde_json::Value> {
        let stream = UnixStream::connect(self.data.join("quintet.sock"))?;
        let connection = Connection::of(Box::new(stream), PATIENCE)?;
        let reply = http::ask(connection, &format!("GET /api/v1{path}"), "", b"")?;
        Ok(reply.json())
    }

    /// One number of `quintet stats`.
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        let stats = self.document("/server").expect("a reply");
        let number = stats[name].as_u64();
        number.unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    /// One number of a queue's statistics; none: there is no such queue.
    pub fn number_of(&self, queue: &str, name: &str) -> Option<u64> {
        let escaped: String = queue.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let stats = self.document(&format!("/queues/{escaped}")).ok()?;
        stats[name].as_u64()
    }

    /// One number of the statistics of a queue that is there.
    #[track_caller]
    pub fn queue_number(&self, queue: &str, name: &str) -> u64 {
        let number = self.number_of(queue, name);
        number.unwrap_or_else(|| panic!("no {name} of {queue}"))
    }

    /// Asks until a number is as it should be.
    #[track_caller]
    pub fn await_number(&self, name: &str, right: impl Fn(u64) -> bool) {
        eventually(name, || right(self.number(name)).then_some(()));
    }

    /// Sends a signal; after SIGSTOP this returns when all of its threads stand still.
    pub fn signal(&self, signal: Signal) {
        self.try_signal(signal).expect("signalled");
        if signal == Signal::STOP {
            eventually("a stop", || stands_still(self.child.id()).then_some(()));
        }
    }

    /// # Errors
    /// It is gone.
    pub fn try_signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// The first line that begins so, for which it waits no longer than `patience`.
    ///
    /// # Errors
    /// Nothing of the kind in time; or, as an unexpected end, it prints no more.
    pub fn says(&mut self, start: &str, patience: Duration) -> io::Result<String> {
        let printed = self.printed.get_mut().expect("no panic");
        let began = Instant::now();
        let mut looked_at = 0;
        loop {
            let new = self.lines[looked_at..].iter();
            if let Some(line) = new.clone().find(|line| line.starts_with(start)) {
                return Ok(line.clone());
            }
            looked_at = self.lines.len();
            let left = patience.saturating_sub(began.elapsed());
            match printed.recv_timeout(left) {
                Ok(line) => self.lines.push(line),
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }

    /// The first line that begins so; none: it ended without one.
    fn find_line(&mut self, start: &str) -> io::Result<Option<String>> {
        match self.says(start, PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first line that begins so.
    #[track_caller]
    pub fn wait_for(&mut self, start: &str) -> String {
        let line = self.says(start, PATIENCE);
        line.unwrap_or_else(|why| panic!("{why}: no {start:?} in {:?}", self.lines))
    }

    /// Lines printed so far do not count any more.
    pub fn forget_lines(&mut self) {
        let printed = self.printed.get_mut().expect("no panic");
        while printed.try_recv().is_ok() {}
        self.lines.clear();
    }

    /// Standard error of a logged server since this start.
    pub fn stderr_text(&self) -> String {
        let mut bytes = Vec::new();
        let Some((path, from)) = &self.log else {
            return String::new();
        };
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(*from))?;
            file.read_to_end(&mut bytes)
        });
        read.expect("its log");
        text(&bytes)
    }

    /// Sends SIGTERM and waits for its end.
    pub fn stop(mut self) -> ExitStatus {
        self.terminate()
    }

    /// The same, for a test that reads its log afterwards.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    /// It has ended by itself, or by a cut.
    pub fn ended(mut self) -> ExitStatus {
        self.wait()
    }

    /// The status with which it ends.
    pub fn wait(&mut self) -> ExitStatus {
        self.end().expect("the server ends")
    }

    /// Waits for its end, which something has caused.
    ///
    /// # Errors
    /// It goes on.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it and starts another one on the same directory, with listeners as `start` says.
    pub fn kill_and_start(mut self, start: Start<'_>) -> Self {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
        let mut next = start.serve_at(&self.data);
        next.own = self.own.take();
        next
    }

    /// A command that talks to this server.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = quintet(args);
        let output = command.arg("--data").arg(&self.data).output();
        output.expect("the binary runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves no server behind. Errors: it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The configuration file of a data directory.
fn beside(data: &Path) -> PathBuf {
    data.with_extension("toml")
}

fn configure(path: &Path, text: &str) {
    std::fs::write(path, small_files(text)).expect("configuration written");
    // It may hold hashes.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, private).expect("protected");
}

fn serve(data: &Path, config: &Path, start: &Start<'_>) -> Command {
    configure(config, start.config.unwrap_or_default());
    let mut command = quintet(&["serve", "--data"]);
    command.arg(data).arg("--config").arg(config);
    if let Some(sync) = start.sync {
        command.args(["--sync", sync]);
    }
    command
}

/// Sends standard error to the end of a file; returns the file and where it ended.
fn log_to(command: &mut Command, path: &Path) -> io::Result<(PathBuf, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let from = file.metadata()?.len();
    command.stderr(file);
    Ok((path.to_owned(), from))
}

/// True if SIGSTOP has reached all threads of a process, or if the process is gone. On a busy
/// machine the others go on for a while after `kill` has returned.
pub fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().all(|thread| {
        // The state comes behind the name, which is in brackets. A thread may end meanwhile.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
        state.is_none_or(|state| state == Some('T'))
    })
}
