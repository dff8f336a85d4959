//! TCP between two processes, which can be cut.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use anyhow::Result;

/// The traffic that is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Connections end, and new ones end at once.
    Broken,
    /// Bytes are lost in silence: in the direction of the connecting, in the other, or in both.
    Silent { there: bool, back: bool },
}

/// Listens on a port of its own, and passes connections on to another one.
pub(super) struct Proxy {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cut: Option<Cut>,
    open: Vec<Weak<Pair>>,
}

/// A connection from one process, and the one to the other.
struct Pair {
    near: TcpStream,
    far: TcpStream,
    over: AtomicBool,
}

impl Pair {
    fn end(&self) {
        self.over.store(true, SeqCst);
        for stream in [&self.near, &self.far] {
            // Errors: it has ended.
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Proxy {
    /// Passes on to this port of this machine, for as long as the process runs.
    pub(super) fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let gate = Arc::new(Gate::default());
        let at = Arc::clone(&gate);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let gate = Arc::clone(&at);
                // A process that is stopped may take its time to accept.
                thread::spawn(move || gate.join(near, to));
            }
        });
        Ok(Self { port, gate })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn cut(&self, cut: Cut) {
        let mut state = self.gate.state();
        state.cut = Some(cut);
        if cut == Cut::Broken {
            state.end_all();
        }
        drop(state);
        self.gate.changed.notify_all();
    }

    /// Lets everything through again. What was held up comes late, as the system sends again what
    /// was lost; or its connections end, as when that took too long.
    pub(super) fn mend(&self, late: bool) {
        let mut state = self.gate.state();
        if state.cut.take().is_some() && !late {
            state.end_all();
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

impl State {
    fn end_all(&mut self) {
        for pair in self.open.drain(..) {
            if let Some(pair) = pair.upgrade() {
                pair.end();
            }
        }
    }

    fn holds(&self, there: bool) -> bool {
        match self.cut {
            Some(Cut::Silent { there: out, back }) => [back, out][usize::from(there)],
            Some(Cut::Broken) | None => false,
        }
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: Arc<Self>, near: TcpStream, to: u16) {
        if self.state().cut == Some(Cut::Broken) {
            return;
        }
        // There is no connection to a node that is away.
        let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else {
            return;
        };
        near.set_nodelay(true).ok();
        far.set_nodelay(true).ok();
        let over = AtomicBool::new(false);
        let pair = Arc::new(Pair { near, far, over });
        {
            let mut state = self.state();
            if state.cut == Some(Cut::Broken) {
                return;
            }
            state.open.retain(|pair| pair.strong_count() > 0);
            state.open.push(Arc::downgrade(&pair));
        }
        let (gate, same) = (Arc::clone(&self), Arc::clone(&pair));
        thread::spawn(move || gate.pass(&same, false));
        self.pass(&pair, true);
    }

    /// Passes on what comes from one side, until either has ended.
    fn pass(&self, pair: &Pair, there: bool) {
        let (from, to) = match there {
            true => (&pair.near, &pair.far),
            false => (&pair.far, &pair.near),
        };
        if self.pass_all(pair, from, to, there).is_err() {
            pair.end();
        }
    }

    fn pass_all(
        &self,
        pair: &Pair,
        mut from: &TcpStream,
        mut to: &TcpStream,
        there: bool,
    ) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let len = from.read(&mut bytes)?;
            let mut state = self.state();
            while state.holds(there) && !pair.over.load(SeqCst) {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            if len == 0 {
                return to.shutdown(Shutdown::Write);
            }
            to.write_all(&bytes[..len])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::{Cut, Proxy};

    fn joined() -> (Proxy, TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let proxy = Proxy::start(port).expect("a port");
        let near = TcpStream::connect(("127.0.0.1", proxy.port())).expect("connected");
        let (far, _) = listener.accept().expect("passed on");
        (proxy, listener, near, far)
    }

    fn byte(mut stream: &TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        byte[0]
    }

    #[test]
    fn one_direction_is_silent_and_what_was_held_comes_late() {
        let (proxy, _listener, mut near, mut far) = joined();
        near.write_all(b"1").expect("sent");
        assert_eq!(byte(&far), b'1');
        proxy.cut(Cut::Silent {
            there: true,
            back: false,
        });
        near.write_all(b"2").expect("sent");
        far.write_all(b"3").expect("sent");
        assert_eq!(byte(&near), b'3');
        far.set_nonblocking(true).expect("set");
        let nothing = far.read(&mut [0]).expect_err("held up").kind();
        assert_eq!(nothing, std::io::ErrorKind::WouldBlock);
        far.set_nonblocking(false).expect("set");
        proxy.mend(true);
        assert_eq!(byte(&far), b'2');
    }

    #[test]
    fn connections_end_when_they_are_broken_and_after_a_long_silence() {
        let ended = |mut stream: &TcpStream| stream.read(&mut [0]).unwrap_or(0) == 0;
        let (proxy, listener, near, far) = joined();
        proxy.cut(Cut::Broken);
        assert!(ended(&near) && ended(&far));
        let late = TcpStream::connect(("127.0.0.1", proxy.port())).expect("accepted");
        assert!(ended(&late));
        proxy.mend(true);
        let near = TcpStream::connect(("127.0.0.1", proxy.port())).expect("accepted");
        let (far, _) = listener.accept().expect("passed on");
        // What came through is known to the proxy.
        (&near).write_all(b"1").expect("sent");
        assert_eq!(byte(&far), b'1');
        proxy.cut(Cut::Silent {
            there: true,
            back: true,
        });
        (&near).write_all(b"lost").expect("sent");
        proxy.mend(false);
        assert!(ended(&far) && ended(&near));
    }
}
