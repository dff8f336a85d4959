//! RQ's own sockets: one of the manager, `config/queuemgr.sock`, and one of
//! each queue with a script, `queue/NAME/queue.sock`.
//!
//! One request per connection: `rq1 `, the length in eight digits, a space and
//! the payload, `command argument`; the reply has the same form with JSON in
//! it. Only the server's user may connect.

pub(crate) mod answer;
mod frame;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use quintet_types::locked;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::paths::forget;

pub use frame::{FrameError, PAYLOAD_MAX, frame, parse};

/// A client that is silent for longer is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes dropped behind a request that makes no sense.
const UNREAD_MAX: u64 = 64 << 10;
/// Rest after a request that the system had no file or memory for: it is still there.
const REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Requests answered at once; a client beyond waits in the socket's line.
const ANSWERING_MAX: usize = 64;

/// Owner of a socket: the manager, or a queue.
type Owner = Option<String>;

/// Answers a request to the manager's socket or to this queue's; `None` once
/// the service is gone.
type Answer = dyn Fn(Option<&str>, &[u8]) -> Option<serde_json::Value> + Send + Sync;

/// Called now and then by the thread that listens.
type Look = dyn Fn() + Send;

/// The sockets, and the thread that listens to them.
pub(crate) struct Sockets {
    listening: Mutex<BTreeMap<Owner, (Arc<UnixListener>, PathBuf)>>,
    /// A byte written here makes the thread look at the list again.
    wake: UnixStream,
    stopping: AtomicBool,
    answering: AtomicUsize,
}

impl Sockets {
    /// Opens the manager's socket and starts to listen; `look` is called every so often.
    ///
    /// # Errors
    /// The thread cannot be started. A socket that cannot be opened (its path
    /// is too long, say) is only logged: nothing else needs it.
    pub(crate) fn start(
        manager: PathBuf,
        answer: Arc<Answer>,
        every: Duration,
        look: Box<Look>,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let sockets = Arc::new(Self {
            listening: Mutex::default(),
            wake,
            stopping: AtomicBool::new(false),
            answering: AtomicUsize::new(0),
        });
        sockets.open(None, manager);
        let own = Arc::clone(&sockets);
        let thread = std::thread::Builder::new().name("rq sockets".to_owned());
        let every = Timespec::try_from(every).map_err(io::Error::other)?;
        let thread = thread.spawn(move || own.listen(&answer, woken, &every, &*look))?;
        Ok((sockets, thread))
    }

    /// Opens a socket, in place of what an earlier process left.
    pub(crate) fn open(&self, owner: Owner, path: PathBuf) {
        let opened = bind(&path);
        match opened {
            Ok(listener) => {
                locked(&self.listening).insert(owner, (Arc::new(listener), path));
                self.check();
            }
            Err(error) => {
                let path = path.display();
                tracing::warn!("cannot open the socket {path} for the rq command line: {error}");
            }
        }
    }

    /// Closes a queue's socket.
    pub(crate) fn close(&self, queue: &str) {
        if let Some((_, path)) = locked(&self.listening).remove(&Some(queue.to_owned())) {
            forget(&path);
        }
        self.check();
    }

    /// Closes all; the thread ends.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for (_, path) in std::mem::take(&mut *locked(&self.listening)).into_values() {
            forget(&path);
        }
        self.check();
    }

    fn check(&self) {
        // A pipe that is full has woken the thread already.
        let _full = (&self.wake).write(&[0]);
    }

    fn listen(
        self: &Arc<Self>,
        answer: &Arc<Answer>,
        mut woken: UnixStream,
        every: &Timespec,
        look: &Look,
    ) {
        let mut drain = [0; 64];
        let (mut rests, mut failed) = (false, 0_u64);
        while !self.stopping.load(Ordering::SeqCst) {
            look();
            let listeners: Vec<(Owner, Arc<UnixListener>)> = locked(&self.listening)
                .iter()
                .map(|(owner, (listener, _))| (owner.clone(), Arc::clone(listener)))
                .collect();
            let busy = rests || self.answering.load(Ordering::SeqCst) >= ANSWERING_MAX;
            let mut polled: Vec<PollFd<'_>> = vec![readable(woken.as_fd())];
            if !busy {
                polled.extend(
                    listeners
                        .iter()
                        .map(|(_, listener)| readable(listener.as_fd())),
                );
            }
            match poll(&mut polled, Some(if rests { &REST } else { every })) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("the rq sockets accept no more requests: {error}");
                    return;
                }
            }
            let ready: Vec<bool> = polled
                .iter()
                .map(|polled| !polled.revents().is_empty())
                .collect();
            drop(polled);
            if ready[0] {
                while matches!(woken.read(&mut drain), Ok(1..)) {}
            }
            rests = false;
            for ((owner, listener), _) in listeners
                .iter()
                .zip(ready.iter().skip(1))
                .filter(|(_, ready)| **ready)
            {
                // Any other error: its client has gone again.
                if let Err(error) = self.accept(answer, owner, listener)
                    && is_used_up(&error)
                {
                    rests = true;
                    failed += 1;
                    if failed.is_power_of_two() {
                        tracing::warn!(
                            "the rq sockets cannot accept a request, {failed} times: {error}"
                        );
                    }
                }
            }
        }
    }

    fn accept(
        self: &Arc<Self>,
        answer: &Arc<Answer>,
        owner: &Owner,
        listener: &UnixListener,
    ) -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        self.answering.fetch_add(1, Ordering::SeqCst);
        let (own, owner, answer) = (Arc::clone(self), owner.clone(), Arc::clone(answer));
        let thread = std::thread::Builder::new().name("rq request".to_owned());
        let spawned = thread.spawn(move || {
            if let Err(error) = serve(&*answer, owner.as_deref(), stream) {
                tracing::debug!("a request over an rq socket ended early: {error}");
            }
            own.answering.fetch_sub(1, Ordering::SeqCst);
            // There may have been too many of them.
            own.check();
        });
        if let Err(error) = spawned {
            self.answering.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!("cannot start a thread for a request over an rq socket: {error}");
        }
        Ok(())
    }
}

/// True if the system has no more files or memory, so that a request stays in its socket's line.
fn is_used_up(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // The data directory is locked: nobody else listens there.
    match std::fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => std::fs::remove_file(path)?,
        // What is not ours stays, and binding says that it is in the way.
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn serve(answer: &Answer, queue: Option<&str>, mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let read = frame::read(&mut stream)?;
    let reply = match &read {
        Ok(payload) => match answer(queue, payload) {
            Some(reply) => reply,
            None => return Ok(()),
        },
        Err(wrong) => serde_json::json!(["fail", wrong.to_string()]),
    };
    stream.write_all(&frame(reply.to_string().as_bytes()))?;
    if read.is_err() {
        // Bytes nobody has read would take the reply along when they go.
        stream.shutdown(Shutdown::Write)?;
        io::copy(&mut stream.take(UNREAD_MAX), &mut io::sink())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_stays_in_line_is_worth_a_rest() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_used_up(&errno.into()), "{errno}");
        }
        for errno in [Errno::AGAIN, Errno::CONNABORTED, Errno::INTR] {
            assert!(!is_used_up(&errno.into()), "{errno}");
        }
    }
}
