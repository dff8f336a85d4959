//! The threads HTTP lives in, its listeners and connections.
//!
//! Each thread runs an event loop of its own. A connection is served by one thread from its begin
//! to its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use quintet_tls::{Identity, Opened, Secure, identity};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::gate::{AuthenticatedClient, Counted};
use crate::head::{HEAD_SLACK, wrong_head};
use crate::interruptible::interruptible;
use crate::paced::Paced;
use crate::reply::Problem;
use crate::secure;
use crate::settings::Settings;
use crate::slots::{Busy, ConnectionSlot, OfAddress, SlotPermit, Slots};
use crate::threads::{LAST_WAIT, Place, Task, Threads};
use crate::undo::Leaving;
use crate::watched::{FarEnd, Watched};
use crate::workers;

/// How long a client that is turned away may take to hear it.
const ERROR_TIME: Duration = Duration::from_secs(1);

/// Why an address gets no more connections.
const CROWDS: &str =
    "your address has three quarters of the listener's connections (max_connections)";

/// The first byte of TLS: a record of a handshake.
const TLS: u8 = 0x16;

/// A reply to come.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Service of a listener over HTTP, and its rules.
pub trait Serve: Send + Sync {
    /// Its name in the configuration.
    fn protocol(&self) -> &'static str;

    /// The rules.
    fn settings(&self) -> &Settings;

    /// True: a client that ends its own side of the connection has given up what it waits for,
    /// and what answers it is dropped.
    fn gives_up(&self) -> bool {
        false
    }

    /// True for the addresses at which others ask how the server is: they are answered although
    /// all places are taken.
    fn tells_health(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// It is being served from now on; called inside the runtime.
    fn begins(self: Arc<Self>) {}

    /// The server stops: what would go on without an end ends soon.
    fn ends(&self);

    /// Answers a request whose head is not as it may be.
    fn turn_away(&self, problem: Problem, _request: &Request<Incoming>) -> Response {
        problem.into_response()
    }

    /// Answers a request; `peer` is `None` on a unix socket. Among the request's extensions is
    /// its connection, as an `Arc<`[`crate::Client`]`>`.
    fn answer(self: Arc<Self>, peer: Option<IpAddr>, request: Request<Incoming>) -> Answering;
}

/// Service of a listener, with its counters.
struct Site {
    serve: Arc<dyn Serve>,
    /// That clients come with TLS has been said.
    tls_reported: AtomicBool,
}

impl Site {
    fn settings(&self) -> &Settings {
        self.serve.settings()
    }

    /// A connection comes.
    ///
    /// # Errors
    /// Why it has to go.
    fn arrive(&self, peer: Option<IpAddr>, slots: &Arc<Slots>) -> Result<Counted, &'static str> {
        let settings = self.settings();
        let of_address = peer.filter(|peer| !settings.is_trusted(*peer)).map(|peer| {
            slots.admit(peer).ok_or_else(|| {
                if settings.clients.crowds() {
                    tracing::warn!(%peer, protocol = self.serve.protocol(), "{CROWDS}: refused");
                }
                CROWDS
            })
        });
        let of_address: Option<OfAddress> = of_address.transpose()?;
        let counted = match &settings.gate {
            Some(gate) => gate.arrive(peer)?,
            None => None,
        };
        Ok(Some(Box::new((of_address, counted))))
    }

    /// A handshake failed.
    fn failed(&self, peer: Option<IpAddr>) {
        if let Some(gate) = &self.settings().gate {
            gate.failed(peer);
        }
    }

    /// Takes note of a connection's first byte. TLS is no request and answered
    /// so; that it comes is said once.
    fn note_first(&self, byte: u8) {
        if byte == TLS && !self.tls_reported.swap(true, Ordering::Relaxed) {
            let protocol = self.serve.protocol();
            tracing::warn!(
                "{protocol}: a client speaks TLS, to a plain port: the listener has no certificate"
            );
        }
    }
}

/// A listening socket. Its opener removes its file.
#[derive(Debug)]
pub enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
    /// None: connections come by [`Forwarding`] alone.
    Elsewhere,
}

/// A connection that somebody else accepted.
pub struct ForwardedConnection {
    /// Its bytes, not blocking.
    pub stream: Connected,
    /// Where its client is; `None`: on a unix socket.
    pub peer: Option<SocketAddr>,
    /// The client's identity by a certificate that the node it came through has checked.
    pub identity: Option<Arc<Identity>>,
    /// The client as long as its requests show no login.
    pub known: Option<AuthenticatedClient>,
    /// Kept as long as the connection is there.
    pub counted: Counted,
}

/// A connected socket that belongs to no runtime yet.
#[derive(Debug)]
pub enum Connected {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// The way in for connections that somebody else accepted; clones lead to the same.
#[derive(Clone, Debug)]
pub struct Forwarding(Arc<[mpsc::UnboundedSender<ForwardedConnection>]>);

impl Forwarding {
    /// Whether the site of this number takes connections; false: HTTP has ended. `None`: there is
    /// no such site.
    pub fn serves(&self, site: usize) -> Option<bool> {
        self.0.get(site).map(|site| !site.is_closed())
    }

    /// Serves a connection by the site of this number, in the order of [`Web::start`], when it has
    /// a place. Closed if there is none or HTTP has ended.
    pub fn take(&self, site: usize, forwarded: ForwardedConnection) {
        if let Some(site) = self.0.get(site)
            && site.send(forwarded).is_err()
        {
            tracing::debug!("http: a connection came too late");
        }
    }
}

/// HTTP, being served in threads of its own.
#[derive(Debug)]
pub struct Web {
    stop: oneshot::Sender<Duration>,
    /// The first one, which waits for the others.
    thread: JoinHandle<bool>,
    forwarding: Forwarding,
}

impl Web {
    /// Serves each socket by its site, in one thread of this name and, as connections come, so many
    /// at most. Connections are accepted from now on. `task` is asked once for each thread.
    ///
    /// # Errors
    /// The system has no thread or no event queue to give.
    pub fn start(
        name: &'static str,
        threads: usize,
        sites: Vec<(Socket, Arc<dyn Serve>)>,
        task: impl Fn() -> Option<Task> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let threads = Arc::new(Threads::new(name, threads, task));
        let first = threads.first()?;
        let mut listeners = Vec::new();
        let mut forwarding = Vec::new();
        {
            // Sockets become part of the runtime they are made in.
            let _inside = first.enter();
            for (socket, serve) in sites {
                let site = Arc::new(Site {
                    serve,
                    tls_reported: AtomicBool::new(false),
                });
                let (sender, forwarded) = mpsc::unbounded_channel();
                forwarding.push(sender);
                let socket = Listener::new(socket)?;
                listeners.push((Listeners { socket, forwarded }, site));
            }
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            first.block_on(serve(listeners, &threads, stopped));
            let ending = threads.end();
            first.shutdown_timeout(LAST_WAIT);
            workers::end(LAST_WAIT);
            ending.into_iter().all(|thread| thread.join().is_ok())
        })?;
        Ok(Self {
            stop,
            thread,
            forwarding: Forwarding(forwarding.into()),
        })
    }

    /// The way in for connections that somebody else accepted.
    pub fn forwarding(&self) -> Forwarding {
        self.forwarding.clone()
    }

    /// Accepts no more, lets requests under way end within `grace`, then cuts
    /// what is left. Returns when all is over; false if a thread had failed.
    pub fn stop(self, grace: Duration) -> bool {
        // A thread that is gone needs no telling; joining it says how it went.
        let _gone = self.stop.send(grace);
        self.thread.join().unwrap_or(false)
    }
}

/// Serves a connection in its place.
fn take(
    place: Place,
    stream: Stream,
    mut from: From,
    site: Arc<Site>,
    watcher: Watcher,
    connection_slot: Arc<ConnectionSlot>,
) {
    from.load = Some(place.counted);
    let Some(runtime) = place.runtime else {
        return serve_stream(stream, from, site, watcher, connection_slot);
    };
    let taken = stream.into_std();
    runtime.spawn(async move {
        match taken.and_then(Stream::of) {
            Ok(stream) => serve_stream(stream, from, site, watcher, connection_slot),
            Err(error) => {
                tracing::warn!("http: a connection cannot be served: {error}");
                connection_slot.leave();
            }
        }
    });
}

/// Where a site's connections come from.
struct Listeners {
    socket: Listener,
    forwarded: mpsc::UnboundedReceiver<ForwardedConnection>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Elsewhere,
}

impl Listener {
    fn new(socket: Socket) -> io::Result<Self> {
        match socket {
            Socket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Listener::Tcp)
            }
            Socket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Listener::Unix)
            }
            Socket::Elsewhere => Ok(Listener::Elsewhere),
        }
    }
}

async fn serve(
    listeners: Vec<(Listeners, Arc<Site>)>,
    threads: &Arc<Threads>,
    stopped: oneshot::Receiver<Duration>,
) {
    let graceful = Arc::new(GracefulShutdown::new());
    let mut accepting = tokio::task::JoinSet::new();
    let mut sites = Vec::new();
    for (listener, site) in listeners {
        Arc::clone(&site.serve).begins();
        sites.push(Arc::clone(&site));
        let (graceful, threads) = (Arc::clone(&graceful), Arc::clone(threads));
        accepting.spawn(accept(listener, site, graceful, threads));
    }
    // Dropped without a word counts as "at once".
    let grace = stopped.await.unwrap_or_default();
    accepting.shutdown().await;
    // Streams would never end by themselves.
    for site in &sites {
        site.serve.ends();
        site.settings().clients.stop();
    }
    if let Some(graceful) = Arc::into_inner(graceful)
        && tokio::time::timeout(grace, graceful.shutdown())
            .await
            .is_err()
    {
        tracing::info!("http: requests that did not end in time are cut");
    }
}

impl Listeners {
    async fn accept(&mut self) -> io::Result<(Stream, From)> {
        tokio::select! {
            accepted = self.socket.accept() => accepted,
            Some(ForwardedConnection { stream, peer, identity, known, counted }) = self.forwarded.recv() => {
                let came = Came::Forwarded;
                Ok((
                    Stream::of(stream)?,
                    From {
                        peer,
                        identity,
                        known,
                        came,
                        counted,
                        load: None,
                    },
                ))
            }
        }
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<(Stream, From)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Without it a reply in several writes waits for the peer.
                let _slower = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), From::direct(Some(peer))))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), From::direct(None)))
            }
            Listener::Elsewhere => std::future::pending().await,
        }
    }
}

async fn accept(
    mut listeners: Listeners,
    site: Arc<Site>,
    graceful: Arc<GracefulShutdown>,
    threads: Arc<Threads>,
) {
    let limits = &site.settings().limits;
    let slots = Slots::new(limits.connections_max, limits.apart_max);
    let mut failed = 0_u64;
    loop {
        let place = slots.connection_slot().await;
        let (stream, mut from) = match slots.watched(listeners.accept()).await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, mostly: those who hold them need time to end.
                failed += 1;
                if failed.is_power_of_two() {
                    tracing::warn!("http: cannot accept a connection, {failed} times: {error}");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Stream::Tcp(_) = &stream {
            match site.arrive(from.address(), &slots) {
                Ok(counted) => from.counted = Some(Box::new((from.counted, counted))),
                Err(why) => {
                    let clear = site.settings().tls.is_none() || from.came == Came::Forwarded;
                    if let (true, Stream::Tcp(stream)) = (clear, stream) {
                        tokio::spawn(refuse(stream, why, place));
                    }
                    continue;
                }
            }
        }
        let connection_slot = ConnectionSlot::new(&slots, place);
        take(
            threads.place(),
            stream,
            from,
            Arc::clone(&site),
            graceful.watcher(),
            connection_slot,
        );
    }
}

/// A socket of the runtime of this thread.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn of(connected: Connected) -> io::Result<Self> {
        Ok(match connected {
            Connected::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Connected::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// The same, of no runtime.
    fn into_std(self) -> io::Result<Connected> {
        Ok(match self {
            Self::Tcp(stream) => Connected::Tcp(stream.into_std()?),
            Self::Unix(stream) => Connected::Unix(stream.into_std()?),
        })
    }
}

/// Where a connection comes from.
struct From {
    peer: Option<SocketAddr>,
    /// The client's identity, if a certificate names it.
    identity: Option<Arc<Identity>>,
    /// The client without a login.
    known: Option<AuthenticatedClient>,
    came: Came,
    /// As long as it is there, it counts.
    counted: Counted,
    /// The same, among those of its thread.
    load: Option<Arc<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    /// By this listener.
    Direct,
    /// Through another node, which has taken its TLS off.
    Forwarded,
}

impl From {
    fn direct(peer: Option<SocketAddr>) -> Self {
        Self {
            peer,
            identity: None,
            known: None,
            came: Came::Direct,
            counted: None,
            load: None,
        }
    }

    /// Where its client is, as limits count it.
    fn address(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip().to_canonical())
    }

    /// Tells a request, for those that ask, who its client is.
    fn introduce(&self, request: &mut Request<Incoming>) {
        if let Some(identity) = &self.identity {
            request.extensions_mut().insert(Arc::clone(identity));
        }
        if let Some(known) = &self.known {
            request.extensions_mut().insert(known.clone());
        }
    }
}

/// Tells a client of which there are too many so, and closes.
async fn refuse(mut stream: TcpStream, why: &'static str, _place: SlotPermit) {
    let text = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n429 - {why}",
        "429 - ".len() + why.len()
    );
    let notified = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset it, and the answer might never be seen.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // The server does not wait for a client that does not read.
    let _told = timeout(ERROR_TIME, notified).await;
}

/// There is no place for a request.
fn full() -> Problem {
    let text = "too many connections (max_connections)";
    Problem::with_text(StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Answers a request without looking at it, and closes.
fn turn_away(serve: &dyn Serve, problem: Problem, request: Request<Incoming>) -> Response {
    let mut response = serve.turn_away(problem, &request);
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let again = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, again);
    }
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    // Its body may still be on its way.
    drop(interruptible(request));
    response
}

/// Serves a connection by the runtime of this thread.
fn serve_stream(
    stream: Stream,
    from: From,
    site: Arc<Site>,
    watcher: Watcher,
    connection_slot: Arc<ConnectionSlot>,
) {
    match (stream, &site.settings().tls) {
        (Stream::Tcp(stream), Some(tls)) if from.came == Came::Direct => {
            let tls = tls.clone();
            tokio::spawn(begin(stream, from, site, tls, watcher, connection_slot));
        }
        (stream, _) => {
            let socket = match stream {
                Stream::Tcp(stream) => Watched::from(stream),
                Stream::Unix(stream) => Watched::from(stream),
            };
            let far_end = socket.far_end();
            connection(socket, far_end, from, &site, watcher, connection_slot, None);
        }
    }
}

/// Sees to a handshake, then serves.
async fn begin(
    stream: TcpStream,
    mut from: From,
    site: Arc<Site>,
    tls: Secure,
    watcher: Watcher,
    connection_slot: Arc<ConnectionSlot>,
) {
    let shaken = tokio::select! {
        shaken = timeout(tls.shared.handshake_time(), secure::handshake(stream, &tls)) => {
            shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        () = connection_slot.makes_way() => Err(io::ErrorKind::TimedOut.into()),
        () = site.settings().clients.is_stopped() => Err(io::ErrorKind::TimedOut.into()),
    };
    match shaken {
        Ok(stream) => {
            let (socket, tls_side) = stream.get_ref();
            from.identity = identity(tls_side.peer_certificates());
            let far_end = socket.far_end();
            let opened = Some(tls.shared.open_until_dropped());
            connection(
                stream,
                far_end,
                from,
                &site,
                watcher,
                connection_slot,
                opened,
            );
        }
        Err(error) => {
            tls.shared
                .failed(site.serve.protocol(), None, from.peer, &error);
            site.failed(from.address());
            connection_slot.leave();
        }
    }
}

/// The reply of `serve`, once there is a place for the request; without one it is turned away.
async fn reply(
    serve: Arc<dyn Serve>,
    peer: Option<IpAddr>,
    request: Request<Incoming>,
    connection_slot: Arc<ConnectionSlot>,
) -> Response<Busy> {
    let always = serve.tells_health(request.uri().path());
    let limits = &serve.settings().limits;
    let (timeout, header_bytes_max) = (limits.timeout, limits.header_bytes_max);
    let mut response = match wrong_head(&request, header_bytes_max) {
        None if always || connection_slot.takes_place(timeout).await => {
            serve.answer(peer, request).await
        }
        wrong => turn_away(&*serve, wrong.unwrap_or_else(full), request),
    };
    let leaving = response.extensions_mut().remove::<Leaving>();
    let undo = leaving.and_then(|leaving| leaving.take());
    response.map(|body| Busy::new(body, connection_slot, undo))
}

/// Serves a connection; `opened` is kept as long as it is there.
fn connection<S>(
    stream: S,
    far_end: FarEnd,
    mut from: From,
    site: &Arc<Site>,
    watcher: Watcher,
    connection_slot: Arc<ConnectionSlot>,
    opened: Option<Opened>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (counted, load) = (from.counted.take(), from.load.take());
    let settings = site.settings();
    let secret = opened.is_some();
    let present =
        settings
            .clients
            .come(site.serve.protocol(), &settings.address, from.peer, secret);
    let client = Arc::clone(present.client());
    client.is_at(far_end);
    // Nobody else has set it.
    let _new = connection_slot.client.set(Arc::clone(&client));
    let limits = &settings.limits;
    let site = Arc::clone(site);
    let notified = Arc::clone(&site);
    let first = move |byte| notified.note_first(byte);
    let stream = Paced::new(
        stream,
        limits.unread.unwrap_or(limits.timeout),
        Box::new(first),
        Arc::clone(&client),
    )
    .answering(!site.serve.gives_up());
    let asking = Arc::clone(&connection_slot);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        // Beyond it hyper itself refuses: no earlier than `wrong_head` does.
        .max_buf_size(limits.header_bytes_max + HEAD_SLACK)
        // What the end of a client's side means is said by `Paced`.
        .half_close(false)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |mut request| {
                from.introduce(&mut request);
                let peer = from.peer.map(|peer| peer.ip());
                let serve = Arc::clone(&site.serve);
                asking.is_busy();
                client.asks(request.method(), request.uri().path());
                request.extensions_mut().insert(Arc::clone(&client));
                // For a stream, which gives its place away.
                request.extensions_mut().insert(Arc::clone(&asking));
                let reply = reply(serve, peer, request, Arc::clone(&asking));
                async move { Ok::<_, std::convert::Infallible>(reply.await) }
            }),
        );
    let connection = watcher.watch(connection);
    let clients = Arc::clone(&settings.clients);
    tokio::spawn(async move {
        let _until_it_ends = (opened, counted, load);
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!("http: connection ended: {error}");
                }
            }
            () = connection_slot.makes_way() => {
                tracing::debug!("http: a silent connection makes way");
            }
            () = connection_slot.ends_with(&clients) => {}
            () = present.is_closed() => {
                tracing::debug!("http: a connection is closed by an operator");
            }
        }
        connection_slot.leave();
    });
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
