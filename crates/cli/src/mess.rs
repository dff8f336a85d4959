//! `quintet demo mess`: a throwaway server with ten faults, for trying alerts, `top` and the
//! console.

use std::io::{BufRead as _, BufReader, Read as _, Write as _, stdout};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(clap::Subcommand)]
pub(super) enum Demo {
    /// Run a server with ten faults: lost, failing and stuck messages, limits, a pause.
    Mess(Mess),
}

#[derive(clap::Args)]
#[command(after_help = "\
The server listens on 127.0.0.1 and uses a temporary directory, which is removed at the end.

Examples:
  quintet demo mess
  quintet demo mess --http 127.0.0.1:3333")]
pub(super) struct Mess {
    /// Address of the console, the API and the metrics.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: String,
}

/// The faults in the order in which they are listed: queue, rule and what is wrong.
const FAULTS: &str = "\
feed.ticks           losing        full, and drops the oldest message for each new one
otp.codes            losing        messages expire before a consumer takes them
mail.send            failing       every try fails
thumbnails           growing       consumers are slower than producers (listed after a minute)
invoices             dead_letters  messages were buried
video.encode         stuck_leases  leases run out: the worker does not finish
imports              limit         full, and rejects puts
partner.api          limit         its take_rate holds consumers back
newsletter           paused        paused, with messages
tenant-1.export ...  no_consumers  20 queues without consumers, shown in one line";

const CONFIG: &str = "\
sync = 'never'
attention_growing = 100
attention_unconsumed_for = '2s'
[[queue]]
name = 'feed.ticks'
messages_max = 100
when_full = 'drop_oldest'
[[queue]]
name = 'otp.codes'
ttl = '1s'
[[queue]]
name = 'mail.send'
retry_delay = '1s'
retry_factor = 1
retry_max = 0
[[queue]]
name = 'imports'
messages_max = 50
[[queue]]
name = 'partner.api'
take_rate = '1/h'
[[queue]]
name = 'newsletter'
paused = true
";

/// Queues with producers and consumers that keep up.
const HEALTHY: &str = "orders.new orders.paid orders.shipped search.index audit.log push.send";

/// Queues of which nobody takes.
const TENANTS: usize = 20;

/// Time between two steps of producers and consumers.
const STEP: Duration = Duration::from_millis(250);

/// A child process; killed when it goes.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// A directory that is removed when it goes.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// A new one for temporary files of this demo.
    pub(super) fn create(demo: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("quintet-{demo}-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("quintet: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The server, which ends before its directory does.
struct Server {
    running: Running,
    folder: Folder,
    console: String,
    beanstalk: String,
}

impl Server {
    fn start(http: &str) -> Result<Self> {
        let folder = Folder::create("mess")?;
        let config = folder.0.join("quintet.toml");
        std::fs::write(&config, CONFIG)?;
        let log = folder.0.join("log");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--listen", &format!("http={http}")])
            .args(["--listen", "beanstalk=127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(folder.0.join("data"));
        let (mut console, mut beanstalk) = (String::new(), String::new());
        let running = start(command, "server", &log, |line| {
            if let Some(address) = line.strip_prefix("console: ") {
                address.clone_into(&mut console);
            } else if let Some(address) = line.strip_prefix("listening beanstalk ") {
                address.clone_into(&mut beanstalk);
            }
            line == "quintet ready"
        })?;
        Ok(Self {
            running,
            folder,
            console,
            beanstalk,
        })
    }
}

/// Starts a server, or a node with its name; it writes its errors to this file. `reads` gets the
/// lines that it prints, and says when it is ready.
pub(super) fn start(
    mut command: Command,
    who: &str,
    log: &Path,
    mut reads: impl FnMut(&str) -> bool,
) -> Result<Running> {
    let mut options = std::fs::File::options();
    let errors = options.create(true).append(true).open(log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        // Keys are for the demo alone.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start a {}", who.split(' ').next().unwrap_or(who)))?;
    let mut running = Running(child);
    let out = running.0.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(out).lines();
    for line in &mut lines {
        if reads(&line?) {
            // Nobody else reads the lines that come later.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(running);
        }
    }
    let log = std::fs::read_to_string(log).unwrap_or_default();
    bail!("the {who} did not start:\n{log}")
}

/// A producer and consumer of one queue, over beanstalk.
struct Worker(BufReader<TcpStream>);

impl Worker {
    fn of(server: &Server, queue: &str) -> Result<Self> {
        let stream = TcpStream::connect(&server.beanstalk)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut worker = Self(BufReader::new(stream));
        for line in [
            format!("use {queue}"),
            format!("watch {queue}"),
            "ignore default".to_owned(),
        ] {
            worker.ask(&line)?;
        }
        Ok(worker)
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        let mut reply = String::new();
        self.0.read_line(&mut reply)?;
        match reply.is_empty() {
            true => bail!("the server closed the connection"),
            false => Ok(reply.trim_end().to_owned()),
        }
    }

    /// Puts so many messages with a time to run, s. A full queue refuses them.
    fn put(&mut self, count: usize, ttr: u32) -> Result<()> {
        for _ in 0..count {
            let body = "{\"demo\": \"mess\"}";
            self.ask(&format!("put 1024 0 {ttr} {}\r\n{body}", body.len()))?;
        }
        Ok(())
    }

    /// Reserves up to so many messages, and then says this about each: `delete`, `bury ID 0`.
    fn take(&mut self, count: usize, then: fn(&str) -> Option<String>) -> Result<()> {
        for _ in 0..count {
            let reply = self.ask("reserve-with-timeout 0")?;
            let mut words = reply.split(' ');
            let (Some("RESERVED"), Some(id), Some(bytes)) =
                (words.next(), words.next(), words.next())
            else {
                return Ok(());
            };
            let mut body = vec![0; bytes.parse::<usize>()? + 2];
            self.0.read_exact(&mut body)?;
            if let Some(line) = then(id) {
                self.ask(&line)?;
            }
        }
        Ok(())
    }
}

/// The running workers.
struct Load {
    faulty: Vec<Worker>,
    healthy: Vec<Worker>,
}

fn finish(id: &str) -> Option<String> {
    Some(format!("delete {id}"))
}

impl Load {
    fn connect(server: &Server) -> Result<Self> {
        let faulty = FAULTS.lines().take(9);
        let faulty = faulty.filter_map(|line| line.split_whitespace().next());
        let faulty = faulty.map(|queue| Worker::of(server, queue));
        let healthy = HEALTHY.split(' ').map(|queue| Worker::of(server, queue));
        Ok(Self {
            faulty: faulty.collect::<Result<_>>()?,
            healthy: healthy.collect::<Result<_>>()?,
        })
    }

    /// Plants the faults.
    fn begin(server: &Server) -> Result<Self> {
        for tenant in 1..=TENANTS {
            Worker::of(server, &format!("tenant-{tenant}.export"))?.put(12, 60)?;
        }
        let mut load = Self::connect(server)?;
        let begin = [400, 50, 30, 150, 12, 6, 110, 40, 25];
        for (at, (worker, count)) in load.faulty.iter_mut().zip(begin).enumerate() {
            worker.put(count, if at == STUCK { 1 } else { 60 })?;
        }
        load.faulty[DEAD].take(12, |id| Some(format!("bury {id} 1024")))?;
        Ok(load)
    }

    fn step(&mut self) -> Result<()> {
        for worker in &mut self.healthy {
            worker.put(1, 60)?;
            worker.take(2, finish)?;
        }
        let [feed, codes, mail, thumbnails, _, video, imports, partner, _] = &mut self.faulty[..]
        else {
            return Ok(());
        };
        feed.put(5, 60)?;
        codes.put(2, 60)?;
        mail.take(3, |id| Some(format!("release {id} 1024 0")))?;
        thumbnails.put(5, 60)?;
        thumbnails.take(1, finish)?;
        video.take(2, |_| None)?;
        imports.put(1, 60)?;
        partner.take(1, finish)
    }
}

/// Where these are in [`FAULTS`].
const DEAD: usize = 4;
const STUCK: usize = 5;

impl Demo {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Self::Mess(mess) = self;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut server = Server::start(&mess.http)?;
        let mut load = Load::begin(&server)?;
        let mut out = stdout().lock();
        writeln!(out, "console: {}", server.console)?;
        writeln!(
            out,
            "also:    quintet top --data {}\n",
            server.folder.0.join("data").display()
        )?;
        writeln!(
            out,
            "Ten faults, in the order in which the console's first page, quintet top and"
        )?;
        writeln!(out, "GET /api/v1/attention list them:\n")?;
        for fault in FAULTS.lines() {
            writeln!(out, "  {fault}")?;
        }
        writeln!(out, "\nCtrl-C ends the server and removes everything.")?;
        out.flush()?;
        while !stop.load(Ordering::Relaxed) {
            // The operator may close connections. An end of the server is found below.
            if let Err(error) = load.step() {
                eprintln!("quintet: {error}: connecting again");
                load = Load::connect(&server).unwrap_or(load);
            }
            if let Some(status) = server.running.0.try_wait()? {
                bail!("the server has ended: {status}");
            }
            sleep(STEP);
        }
        Ok(ExitCode::SUCCESS)
    }
}
