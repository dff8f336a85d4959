//! The part `package` of the tests: the packages' files around the binary of
//! the other tests, unpacked, started as their unit and container start it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Source, deb, output_of};
use crate::needs::has;
use crate::programs::binary;
use crate::target;

/// The first systemd that measures the sandbox of a unit that is not installed.
const SYSTEMD_THAT_MEASURES_FILES: u32 = 250;
/// The most points, of 100, that systemd 252 may give the unit: all its lines are needed for that,
/// but `UMask`, `ProtectHostname`, `LockPersonality` and `RemoveIPC`.
const EXPOSURE_BY_252: u32 = 17;
/// The same of versions that weigh a little differently.
const EXPOSURE_BY_OTHERS: u32 = 20;

/// Builds the package and tries what is in it.
///
/// # Errors
/// Something is missing in it or does not work.
pub(crate) fn run(root: &Path) -> Result<()> {
    let binary = binary(root)?;
    let work = target(root).join("package-trial");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    // The symbols of a debug build are most of it, and of no use here.
    let program = work.join("quintet");
    crate::run(Command::new("strip").arg("-o").args([&program, &binary]))?;
    let source = Source::new(root)?;
    let package = deb::build(&source, &program, 0, &work)?;
    let unpacked = work.join("unpacked");
    crate::run(
        Command::new("dpkg-deb")
            .arg("-x")
            .args([&package, &unpacked]),
    )?;
    contents(&package, &unpacked)?;
    unit(&unpacked)?;
    service(&unpacked, &work)?;
    container(root, &unpacked, &work)?;
    fs::remove_dir_all(&work)?;
    println!("xtask: the package's server, configuration, unit and container script work");
    Ok(())
}

/// Files an operator looks for, and the words for dpkg.
fn contents(package: &Path, unpacked: &Path) -> Result<()> {
    for file in [
        "usr/bin/quintet",
        "usr/lib/systemd/system/quintet.service",
        "etc/quintet/quintet.toml",
        "usr/share/man/man1/quintet.1.gz",
        "usr/share/man/man1/quintet-serve.1.gz",
        "usr/share/bash-completion/completions/quintet",
        "usr/share/doc/quintet/copyright",
        "usr/share/doc/quintet/changelog.gz",
    ] {
        ensure!(unpacked.join(file).is_file(), "the package has no {file}");
    }
    let reported = output_of(Command::new("dpkg-deb").arg("--field").arg(package))?;
    for (at, line) in reported.lines().enumerate() {
        let placeholder = line.matches('@').count() > 1;
        ensure!(
            !placeholder,
            "a placeholder in line {} of control: {line}",
            at + 1
        );
    }
    let listed = output_of(
        Command::new("dpkg-deb")
            .arg("-I")
            .args([package, Path::new("conffiles")]),
    )?;
    ensure!(listed == "/etc/quintet/quintet.toml", "conffiles: {listed}");
    Ok(())
}

/// systemd's own check of the unit, where there is systemd.
fn unit(unpacked: &Path) -> Result<()> {
    if !has("systemd-analyze") {
        println!("xtask: no systemd-analyze here: the unit is not verified");
        return Ok(());
    }
    let text = fs::read_to_string(unpacked.join("usr/lib/systemd/system/quintet.service"))?;
    // The program is not where the unit will find it.
    let program = unpacked.join("usr/bin/quintet");
    let folder = unpacked.join("verify");
    fs::create_dir_all(&folder)?;
    let path = folder.join("quintet.service");
    fs::write(
        &path,
        // In quotes, for a path with a blank.
        text.replace("/usr/bin/quintet", &format!("\"{}\"", program.display())),
    )?;
    crate::run(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path),
    )?;
    sandbox(&text, &folder)
}

/// systemd's own measure of the unit's sandbox, where systemd measures files.
fn sandbox(unit: &str, folder: &Path) -> Result<()> {
    let reported = output_of(Command::new("systemd-analyze").arg("--version"))?;
    let version = reported.split_whitespace().nth(1);
    let version: u32 = version
        .and_then(|version| version.split(['.', '~', '-']).next()?.parse().ok())
        .with_context(|| format!("a version in {reported}"))?;
    if version < SYSTEMD_THAT_MEASURES_FILES {
        println!("xtask: systemd {version} measures no files: the unit's sandbox is not measured");
        return Ok(());
    }
    let threshold = match version {
        252 => EXPOSURE_BY_252,
        _ => EXPOSURE_BY_OTHERS,
    };
    let within = |text: &str| -> Result<bool> {
        let path = folder.join("measured.service");
        fs::write(&path, text)?;
        let measured = Command::new("systemd-analyze")
            .args(["security", "--no-pager", "--offline=true"])
            .arg(format!("--threshold={threshold}"))
            .arg(&path)
            .output()?;
        // One that measured nothing says so in another way.
        let reported = String::from_utf8_lossy(&measured.stdout);
        ensure!(reported.contains("Overall exposure"), "{measured:?}");
        Ok(measured.status.success())
    };
    ensure!(within(unit)?, "the unit's exposure is over {threshold}");
    // The measure is one: without these it is passed.
    for line in [
        "CapabilityBoundingSet=\n",
        "SystemCallFilter=@system-service\n",
    ] {
        let without = unit.replacen(line, "", 1);
        ensure!(without != unit, "the unit has no {line}");
        ensure!(!within(&without)?, "nothing is worse without {line}");
    }
    println!("xtask: systemd {version}: the unit's exposure is at most {threshold} of 100");
    Ok(())
}

/// A server that is ended when this goes.
struct Server {
    child: Child,
    /// By protocol, `HOST:PORT`.
    addresses: BTreeMap<String, String>,
    /// The lines that it printed before it was ready.
    stated: Vec<String>,
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .env_remove("NOTIFY_SOCKET")
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("it has an output")?;
        let mut server = Self {
            child,
            addresses: BTreeMap::new(),
            stated: Vec::new(),
        };
        for line in BufReader::new(output).lines() {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            if let ["listening", protocol, address] = words[..] {
                let address = address.to_owned();
                server.addresses.insert(protocol.to_owned(), address);
            }
            if line == "quintet ready" {
                return Ok(server);
            }
            server.stated.push(line);
        }
        bail!("the server ended before it was ready: {command:?}")
    }

    /// Its reply over `protocol` to these requests, of which the last is `quit`.
    fn ask(&self, protocol: &str, requests: &str) -> Result<String> {
        let address = self.addresses.get(protocol);
        let address = address.with_context(|| format!("it does not listen for {protocol}"))?;
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(requests.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Stops it as systemd does.
    fn stop(mut self) -> Result<()> {
        crate::run(Command::new("kill").arg(self.child.id().to_string()))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a stop ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also when something failed in between; one that has ended is left alone.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

const JOB: &str = "put 0 0 60 2\r\nhi\r\nreserve\r\nquit\r\n";
const HELD: &str = "INSERTED 1\r\nRESERVED 1 2\r\nhi\r\n";

/// The server with the package's configuration, its data elsewhere.
fn service(unpacked: &Path, work: &Path) -> Result<()> {
    let server = Server::start(
        Command::new(unpacked.join("usr/bin/quintet"))
            .args(["serve", "--listen", "beanstalk=127.0.0.1:0", "--config"])
            .arg(unpacked.join("etc/quintet/quintet.toml"))
            .arg("--data")
            .arg(work.join("data")),
    )?;
    let answer = server.ask("beanstalk", JOB)?;
    ensure!(answer == HELD, "a job: {answer}");
    server.stop()
}

/// The container's script: a token is printed once, lets its holder in, and nobody
/// gets in without.
fn container(root: &Path, unpacked: &Path, work: &Path) -> Result<()> {
    let data = work.join("container");
    fs::create_dir_all(&data)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", unpacked.join("usr/bin").display());
    let start = || {
        Server::start(
            Command::new(root.join("packaging/docker/quintet-start"))
                .args(["--listen", "beanstalk=127.0.0.1:0"])
                .env("PATH", &path)
                .env("QUINTET_DATA", &data),
        )
    };
    let first = start()?;
    let token = token(&first.stated).context("the first start tells no token")?;
    let refused = first.ask("beanstalk", JOB)?;
    ensure!(!refused.contains("INSERTED"), "without a login: {refused}");
    let answer = first.ask("beanstalk", &format!("auth quintet {token}\r\n{JOB}"))?;
    ensure!(
        answer == format!("OK\r\n{HELD}"),
        "with the token: {answer}"
    );
    first.stop()?;
    let second = start()?;
    ensure!(
        self::token(&second.stated).is_none(),
        "the same token again"
    );
    let answer = second.ask("beanstalk", &format!("auth quintet {token}\r\nquit\r\n"))?;
    ensure!(answer == "OK\r\n", "the token after a restart: {answer}");
    second.stop()
}

fn token(stated: &[String]) -> Option<String> {
    let reported = stated.iter().find_map(|line| line.split_once(", token "));
    reported.map(|(_, token)| token.to_owned())
}
