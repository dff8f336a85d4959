//! `quintet import`.

mod batch;
mod count;
mod from;
mod importer;

use std::collections::VecDeque;
use std::io::{Write as _, sink, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use quintet_types::{CommandError, Name};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::Where;
use super::api::{Api, part};
use super::client::Refused;
use super::progress::{Of, Progress, STOPPED};
use super::records::{self, BadInput, Source};
use batch::Group;
use count::Counts;
use from::{
    Attached, Beanstalk, Faktory, Files, Kestrel, Mover, Origin, Quintet, RqFolder, Server, Sqs,
    Stored, inspect_binlog, inspect_journal, still_runs,
};
use importer::{Count, Importer, WINDOW};

/// Groups of batches of another server's messages on the way at most: they are reserved there
/// meanwhile.
const PEER_WINDOW: usize = 1;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet import work.jsonl\n  quintet import all.jsonl.gz --data \
                        /var/lib/other\n  quintet import work.jsonl --into again\n  quintet \
                        import --from beanstalk://127.0.0.1:11300 --dry-run\n  quintet import \
                        --from beanstalk://old.example/mail\n  quintet import --from \
                        rq:/var/lib/rq\n  quintet import --from quintet://old.example:3333\n  \
                        quintet import --from 'sqs://orders?region=eu-central-1'\n\nImport stores \
                        the messages in the order of the file, under new ids. After an \
                        interruption repeat the command: for a week the server recognizes stored \
                        messages of the same file and does not store them twice. Exits with 3 if \
                        the file is invalid; all messages before that place are stored.\n\nValues \
                        of --from:\n  beanstalk://HOST[:PORT][/TUBE]   a running beanstalkd: \
                        ready, delayed and buried jobs\n  kestrel://HOST[:PORT][/QUEUE]    a \
                        running Kestrel or Darner (darner://)\n  \
                        faktory://[:PASSWORD@]HOST[:PORT][/QUEUE]\n                                   \
                        a running Faktory: ready jobs\n  \
                        quintet://[USER[:PASSWORD]@]HOST[:PORT][/QUEUE]\n                                   \
                        a running Quintet, by its listener http; quintet+https://\n                                   \
                        with TLS; a token, or the password of USER, in\n                                   \
                        QUINTET_FROM_TOKEN\n  \
                        sqs://[[ACCOUNT/]QUEUE][?region=REGION&endpoint=URL]\n                                   \
                        Amazon SQS, or a compatible server at URL; keys in\n                                   \
                        AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and\n                                   \
                        AWS_SESSION_TOKEN\n  \
                        binlog:DIR                       the -b files of a stopped beanstalkd; \
                        only read\n  kestrel-journal:FILE             a queue of a stopped \
                        Kestrel, with the files NAME.N beside it\n  \
                        rq:FOLDER                        a folder of a stopped RQ: run, que, err \
                        and prep; only read\n\nFrom a running server, import moves messages: it \
                        deletes each there after it is stored here. Ctrl-C releases the messages \
                        that import holds there, and the same command continues. If one of the \
                        servers dies, unacknowledged messages may arrive twice; none is lost."
)]
pub(super) struct Import {
    #[command(flatten)]
    at: Where,
    /// Output of `quintet export`, in any format; `-`: standard input
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    file: Option<PathBuf>,
    /// Another server, or the files that it left on disk (see below).
    #[arg(long, value_name = "WHERE")]
    from: Option<Origin>,
    /// CA certificates for the server of --from, or its own certificate [default: the CAs of
    /// browsers].
    #[arg(long, value_name = "FILE", requires = "from")]
    from_ca: Option<PathBuf>,
    /// Put all messages into this queue instead of the queues they came from.
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,
    /// Store the messages even if this file was imported before.
    #[arg(long)]
    again: bool,
    /// Only count the messages, by queue and state.
    #[arg(long)]
    dry_run: bool,
    /// Scripts folder of the server, for messages of RQ with attachments [default: rq in --data].
    #[arg(long, value_name = "DIR", requires = "from")]
    root: Option<PathBuf>,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Import {
    pub(super) fn run(self) -> Result<ExitCode> {
        match (&self.from, &self.file) {
            (Some(Origin::Binlog(dir)), _) => self.run_left(dir, inspect_binlog(dir)?),
            (Some(Origin::Journal(path)), _) => self.run_left(path, inspect_journal(path)?),
            (Some(Origin::Rq(folder)), _) => self.run_rq(folder),
            (Some(server), _) => self.run_peer(server),
            (None, Some(file)) => self.run_file(file),
            (None, None) => bail!("name a file, or a source with --from"),
        }
    }

    fn importer(&self, window: usize, of: Of) -> Result<Importer<'_>> {
        let into = self.into.as_deref().map(Name::of_shown);
        // What comes from another server is known by being gone there.
        let peer = |from: &Origin| from.server().is_some();
        let again = self.again || self.from.as_ref().is_some_and(peer);
        Ok(Importer {
            at: &self.at,
            client: Api::connect(&self.at)?,
            into: into.map(|name| name.to_string()),
            again,
            searching: !again,
            window,
            reported: 0,
            gathered: Group::default(),
            sent: VecDeque::new(),
            sent_bytes: 0,
            count: Count::default(),
            progress: Progress::new("importing", of, self.quiet),
            position: 0,
        })
    }

    fn run_file(&self, path: &Path) -> Result<ExitCode> {
        let (file, bytes) = records::open(path)?;
        let mut source = records::source(file)?;
        if self.dry_run {
            let counts = counted(&mut *source);
            return report(&counts.with_context(|| path.display().to_string())?);
        }
        let mut importer = self.importer(WINDOW, Of::Bytes(bytes))?;
        let done = importer.all(&mut *source);
        self.show(&importer, done.is_ok());
        done.with_context(|| path.display().to_string())?;
        Ok(ExitCode::SUCCESS)
    }

    /// How much was stored, at the end of files.
    fn show(&self, importer: &Importer<'_>, well: bool) {
        importer.progress.clear();
        if !well || !self.quiet {
            importer.count.report(well);
        }
    }

    /// Stores what a server left on disk, as far as it can be read.
    fn run_left(&self, path: &Path, mut source: Files<impl Stored>) -> Result<ExitCode> {
        let counts = source.counts();
        let bad = source.damage.take().map(|damage| {
            BadInput::error(
                damage,
                "the other files are readable; the rest of this file is not, so messages may be \
                 missing, and finished ones may come again",
            )
        });
        if self.dry_run {
            let code = report(&counts)?;
            return bad.map_or(Ok(code), Err);
        }
        let total = counts.sum(&["ready", "delayed", "buried"]);
        let mut importer = self.importer(WINDOW, Of::Messages(total))?;
        let done = importer.all(&mut source);
        self.show(&importer, done.is_ok() && bad.is_none());
        done.with_context(|| path.display().to_string())?;
        bad.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    fn run_rq(&self, root: &Path) -> Result<ExitCode> {
        let own = self
            .root
            .clone()
            .unwrap_or_else(|| self.at.data().join("rq"));
        let folder = RqFolder::inspect(root)?;
        let counts = folder.counts();
        if self.dry_run {
            return report(&counts);
        }
        if still_runs(root, &own) {
            bail!(
                "RQ runs on {}: stop it first, or both servers run the messages",
                root.display()
            );
        }
        if !self.quiet {
            eprint!("{counts}");
        }
        let RqFolder { plain, attached } = folder;
        if self.into.is_some() && !attached.is_empty() {
            bail!("messages with attachments go to the queue they came from: leave out --into");
        }
        let mut with_files = Attached::to(own);
        with_files.ready(&attached)?;
        let total = (plain.len() + attached.len()) as u64;
        let mut importer = self.importer(WINDOW, Of::Messages(total))?;
        let done = importer.all(&mut Files::of(plain)).and_then(|()| {
            for place in &attached {
                with_files.store(place)?;
                importer.position += 1;
                importer.progress.add(1, 0, importer.position);
            }
            Ok(())
        });
        importer.count.stored += with_files.stored;
        importer.count.before += with_files.before;
        self.show(&importer, done.is_ok());
        if with_files.failed > 0 {
            eprintln!(
                "{} of them failed at RQ and have attachments: they are in prep; commit or delete \
                 them",
                with_files.failed
            );
        }
        done.context("repeat the command to continue")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Moves what a running server has.
    fn run_peer(&self, origin: &Origin) -> Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A second one ends it at once.
            flag::register_conditional_default(signal, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .context("cannot wait for Ctrl-C")?;
        }
        let ca = self.from_ca.as_deref();
        match origin {
            Origin::Beanstalk(at) => self.run_server(origin, Beanstalk::connect(at)?, &stop),
            Origin::Kestrel(at) => self.run_server(origin, Kestrel::connect(at)?, &stop),
            Origin::Faktory(at) => self.run_server(origin, Faktory::connect(at)?, &stop),
            Origin::Quintet(site) => self.run_server(origin, Quintet::connect(site, ca)?, &stop),
            Origin::Sqs(place) => self.run_server(origin, Sqs::connect(place, ca)?, &stop),
            Origin::Binlog(_) | Origin::Journal(_) | Origin::Rq(_) => bail!("these are files"),
        }
    }

    /// Moves what this server has, until `stop` is set.
    fn run_server(
        &self,
        origin: &Origin,
        server: impl Server,
        stop: &Arc<AtomicBool>,
    ) -> Result<ExitCode> {
        let from = origin.server().unwrap_or_default();
        let mut peer = Mover::begin(server, Arc::clone(stop))?;
        let counts = peer.counts()?;
        if self.dry_run {
            return report(&counts);
        }
        let total = counts.sum(&["ready", "delayed", "buried"]);
        let mut importer = self.importer(PEER_WINDOW, Of::Messages(total))?;
        let into = self.into.as_deref();
        let queue = origin.queue();
        if (into.is_none() || queue.is_none() || into == queue)
            && let Some(here) = peer.server.local()
            && importer.is_connected(here)
        {
            bail!(
                "{from} is this server itself: name one queue in --from and another in --into \
                 (or quintet move)"
            );
        }
        self.create(&mut importer.client, peer.server.setups())?;
        let done = moved(&mut importer, &mut peer);
        let fault = peer.server.fault();
        let back = peer.give_back();
        importer.progress.clear();
        let stopped = stop.load(Ordering::Relaxed);
        if done.is_err() || stopped || !self.quiet {
            match importer.count.settled() {
                0 if done.is_ok() && !stopped && fault.is_none() => eprintln!("nothing to import"),
                _ if self.quiet => eprintln!("{}", importer.count),
                _ => eprintln!("{} ({})", importer.count, importer.progress.text()),
            }
            importer.count.losses();
            match &back {
                Ok(0) => {}
                Ok(1) => eprintln!("1 message was held at {from} and is released there"),
                Ok(back) => eprintln!("{back} messages were held at {from} and are released there"),
                Err(_) => eprintln!("{from} releases the held messages by itself"),
            }
            if peer.twice > 0 {
                eprintln!(
                    "{} of them were taken at {from} by other clients meanwhile: they may be \
                     processed twice",
                    peer.twice
                );
            }
        }
        if let Some(fault) = &fault {
            eprintln!("{fault}");
        }
        done.with_context(|| {
            format!("{from}: repeat the command to continue; some of the last may come twice")
        })?;
        Ok(match stopped {
            true => ExitCode::from(STOPPED),
            false if fault.is_some() => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }

    /// Creates the queues of a server with the settings that they have there.
    fn create(&self, client: &mut Api, mut setups: Vec<(String, Value)>) -> Result<()> {
        if let Some(into) = &self.into {
            // Of several there it is one here.
            setups.truncate(usize::from(setups.len() == 1));
            for (queue, _) in &mut setups {
                *queue = Name::of_shown(into).to_string();
            }
        }
        for (queue, setup) in setups {
            let path = format!("/queues/{}", part(&queue));
            let made = client.ask("POST", &path, Some(&setup));
            // One that is there stays as it is.
            if let Err(error) = made
                && !Refused::is(&error, CommandError::QueueExists)
            {
                return Err(error.context("cannot create a queue"));
            }
        }
        Ok(())
    }
}

/// Moves all that a server has.
fn moved(importer: &mut Importer<'_>, peer: &mut Mover<impl Server>) -> Result<()> {
    while !peer.through {
        importer.all(peer)?;
    }
    Ok(())
}

/// Goes through a source and counts.
fn counted(source: &mut dyn Source) -> Result<Counts> {
    let mut counts = Counts::default();
    while let Some(entry) = source.next()? {
        if entry.body.is_none() {
            source.pieces(&mut sink())?;
        }
        counts.add(&entry.head.queue, entry.head.state.word(), 1);
    }
    Ok(counts)
}

/// Output of a dry run.
fn report(counts: &Counts) -> Result<ExitCode> {
    stdout().write_all(counts.to_string().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
