//! The clients' end: a connection waits for an owner, then its bytes flow, both ways, untouched.
//! Before the first one does, the next owner can take the client as well.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;
use tokio_rustls::server;
use tokio_util::either::Either;

use crate::Owners;
use crate::counts::{CountGuard, count};
use crate::line::{Answer, LINE_MAX, Purpose, Question, Tunnel};
use crate::peer_connection::{SAY, line_and_more, line_of};
use crate::shared::{Client, Intake, Settings, Shared};
use crate::socket::{Plain, in_thread, into_std, set_up_peer_socket};
use crate::tls;

/// A node that is there takes a connection much sooner.
const CONNECT: Duration = Duration::from_secs(1);
/// An owner that cannot be reached, or does not serve yet, is asked again after this, and after
/// twice as long each time, up to ...
const AGAIN: Duration = Duration::from_millis(25);
/// ... this; one that is there and begins to serve just now, up to ...
const AGAIN_MAX: Duration = Duration::from_millis(400);
/// ... this.
const SOON: Duration = Duration::from_millis(50);
/// A node that is asked something answers in this time, with so many bytes at most.
const TELL: Duration = Duration::from_secs(3);
const TOLD_MAX: usize = 64 << 10;
/// Bytes a client still sends when its connection ends are read for so long: closing a socket with
/// unread bytes resets it, and the client might never see the last reply.
const DRAIN: Duration = Duration::from_secs(1);
/// An owner that hands over ends its connections before others know the next one.
const NEXT: Duration = Duration::from_secs(1);

/// A client's connection: as it is, or decrypted here.
pub(crate) type Carrier = Either<Plain, Box<server::TlsStream<TcpStream>>>;

/// Names that are looked up at a time.
static LOOKUPS: Semaphore = Semaphore::const_new(8);

/// A peer connection to an owner: as it is, or encrypted.
type PeerConnection = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A peer connection that brings a client.
struct OpenTunnel {
    peer_connection: PeerConnection,
    /// Bytes that the owner has sent to the client already: some protocols speak first, and a
    /// client that is turned away reads the reason at once.
    initial_bytes: Vec<u8>,
    epoch: u64,
}

/// The owner of the queues.
enum Found {
    /// Another node, or this one for a client whose bytes are decrypted.
    Tunnel(OpenTunnel),
    Here(Arc<dyn Intake>),
}

/// Sees to one client, for as long as it is connected.
pub(crate) async fn run(shared: Arc<Shared>, mut client: Carrier, tunnel: Tunnel) {
    let mut owners = shared.owners.clone();
    loop {
        let deadline = Instant::now() + shared.settings.wait;
        let is_plain = matches!(client, Carrier::Left(_));
        let found = {
            let _waits = CountGuard::new(&shared.counts.waiting);
            timeout_at(deadline, find(&shared, &mut owners, &tunnel, is_plain)).await
        };
        let taken = match found {
            Ok(Ok(Found::Tunnel(taken))) => taken,
            Ok(Ok(Found::Here(intake))) => {
                if let Carrier::Left(client) = client
                    && let Ok(stream) = into_std(client)
                {
                    intake.adopt(Client { stream, tunnel });
                }
                return;
            }
            Ok(Err(why)) => {
                let misfits = count(&shared.counts.misfits);
                // Once per power of two: enough to notice, too little to fill a disk.
                if misfits.is_power_of_two() {
                    let protocol = tunnel.protocol;
                    tracing::warn!(protocol, "{misfits} connections closed: {why}");
                }
                return;
            }
            Err(_) => {
                count(&shared.counts.given_up);
                return;
            }
        };
        let _tunnels = CountGuard::new(&shared.counts.tunneled);
        if !flow(&mut client, taken, &mut owners).await {
            return;
        }
    }
}

/// The service of this node, if it owns the queues and takes this client.
fn here<'a>(shared: &'a Shared, tunnel: &Tunnel) -> Option<&'a Arc<dyn Intake>> {
    let serves = shared.owners.borrow().is_us() && !shared.closed.load(Ordering::SeqCst);
    let intake = shared.intake.get().filter(|_| serves)?;
    (intake.admits(tunnel) == Ok(true)).then_some(intake)
}

/// The owner. Tries until there is one.
///
/// # Errors
/// The owner has no such listener, or does not know this cluster.
async fn find(
    shared: &Shared,
    owners: &mut watch::Receiver<Owners>,
    tunnel: &Tunnel,
    is_plain: bool,
) -> Result<Found, String> {
    let mut answered: Option<(u64, String)> = None;
    let mut again = AGAIN;
    loop {
        if is_plain && let Some(intake) = here(shared, tunnel) {
            return Ok(Found::Here(Arc::clone(intake)));
        }
        let known = owners.borrow_and_update().hint().cloned();
        let known = known.map(|hint| (hint.epoch, hint.address));
        // The highest epoch is true, from any node.
        let named = [answered.take(), known].into_iter().flatten();
        let next = named.max_by_key(|(epoch, _)| *epoch);
        if let Some((epoch, address)) = next {
            match ask(shared, &address, tunnel).await {
                Ok((peer_connection, Answer::Ok, initial_bytes)) => {
                    return Ok(Found::Tunnel(OpenTunnel {
                        peer_connection,
                        initial_bytes,
                        epoch,
                    }));
                }
                Ok((_, Answer::Refused(why), _)) => return Err(why),
                Ok((_, Answer::Owner(newer, elsewhere), _)) if newer > epoch => {
                    answered = Some((newer, elsewhere));
                    continue;
                }
                Ok((_, Answer::Owner(..) | Answer::Nobody, _)) => again = again.min(SOON),
                Err(error) => tracing::debug!("no peer connection to {address}: {error}"),
            }
        }
        tokio::select! {
            changed = owners.changed() => {
                if changed.is_err() {
                    // The node ends, and this with it.
                    std::future::pending::<()>().await;
                }
                again = AGAIN;
            }
            () = tokio::time::sleep(again) => again = (again * 2).min(AGAIN_MAX),
        }
    }
}

/// Bytes behind the answer belong to the client.
async fn ask(
    shared: &Shared,
    address: &str,
    tunnel: &Tunnel,
) -> io::Result<(PeerConnection, Answer, Vec<u8>)> {
    let mut peer_connection = connect(&shared.settings, address).await?;
    let ask = Purpose::Tunnel(tunnel.clone()).line(Some(shared.settings.cluster));
    let answer = timeout(SAY, async {
        peer_connection.write_all(ask.as_bytes()).await?;
        peer_connection.flush().await?;
        line_and_more(&mut peer_connection, LINE_MAX).await
    });
    let (answer, initial_bytes) = answer.await??;
    let answer = Answer::read(&answer);
    let answer = answer
        .ok_or_else(|| io::Error::other("cannot read its reply: is it of another version?"))?;
    Ok((peer_connection, answer, initial_bytes))
}

async fn connect(settings: &Settings, address: &str) -> io::Result<PeerConnection> {
    let stream = timeout(CONNECT, async {
        let addresses = match address.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => {
                let name = address.to_owned();
                let look_up = move || name.to_socket_addrs().map(Vec::from_iter);
                in_thread(&LOOKUPS, look_up).await??
            }
        };
        TcpStream::connect(&addresses[..]).await
    });
    let stream = stream.await??;
    set_up_peer_socket(&stream)?;
    let Some(tls) = &settings.tls else {
        return Ok(PeerConnection::Left(stream));
    };
    let name = tls::name_of(address)
        .ok_or_else(|| io::Error::other("its address has no name for a certificate"))?;
    let stream = timeout(SAY, tls.connect.connect(name, stream)).await??;
    Ok(PeerConnection::Right(Box::new(stream)))
}

/// Asks another node something, and waits for its answer, a line; five seconds at most.
///
/// # Errors
/// It cannot be reached, does not answer, or refuses.
///
/// # Panics
/// In a thread that drives a runtime, which it would stop.
pub fn ask_node(settings: &Settings, address: &str, question: Question) -> io::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut peer_connection = connect(settings, address).await?;
        let ask = Purpose::Node(question).line(Some(settings.cluster));
        let answered = timeout(TELL, async {
            peer_connection.write_all(ask.as_bytes()).await?;
            peer_connection.flush().await?;
            line_of(&mut peer_connection, TOLD_MAX).await
        });
        let answered = answered.await??;
        match Answer::read(&answered) {
            Some(Answer::Refused(why)) => Err(io::Error::other(why)),
            _ => Ok(answered),
        }
    })
}

/// Returns when a later owner is known.
async fn deposed(owners: &mut watch::Receiver<Owners>, epoch: u64) {
    let later = |owners: &Owners| owners.hint().is_some_and(|hint| hint.epoch > epoch);
    if owners.wait_for(later).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Lets bytes flow until the owner ends the connection, or is no longer owner. True: there were
/// none, and there is another owner.
async fn flow(
    client: &mut Carrier,
    taken: OpenTunnel,
    owners: &mut watch::Receiver<Owners>,
) -> bool {
    let OpenTunnel {
        mut peer_connection,
        mut initial_bytes,
        epoch,
    } = taken;
    let mut first = Vec::new();
    if initial_bytes.is_empty() {
        let has_ended = tokio::select! {
            _ = client.read_buf(&mut first) => false,
            _ = peer_connection.read_buf(&mut initial_bytes) => initial_bytes.is_empty(),
            () = deposed(owners, epoch) => true,
        };
        if has_ended && timeout(NEXT, deposed(owners, epoch)).await.is_ok() {
            return true;
        }
    }
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_owner, mut to_owner) = tokio::io::split(peer_connection);
    let up = async {
        let copied = async {
            to_owner.write_all(&first).await?;
            to_owner.flush().await?;
            tokio::io::copy(&mut from_client, &mut to_owner).await
        };
        let copied = copied.await;
        // The owner hears at once of a client that is gone, however it went: it may wait for it.
        if to_owner.shutdown().await.is_ok() && copied.is_ok() {
            // Its client has closed its side; what it is owed may still come.
            std::future::pending::<()>().await;
        }
    };
    let down = async {
        // Broken or ended, there is no more to tell.
        if to_client.write_all(&initial_bytes).await.is_ok() && to_client.flush().await.is_ok() {
            tokio::io::copy(&mut from_owner, &mut to_client).await.ok();
        }
    };
    {
        let mut down = std::pin::pin!(down);
        tokio::select! {
            // The owner may have said why it takes no more.
            () = up => {
                timeout(DRAIN, down).await.ok();
            }
            () = &mut down => {}
            // It can answer nothing any more; if its machine is gone nobody else says so.
            () = deposed(owners, epoch) => {}
        }
    }
    if to_client.shutdown().await.is_ok() {
        let mut sink = tokio::io::sink();
        let drain = tokio::io::copy(&mut from_client, &mut sink);
        timeout(DRAIN, drain).await.ok();
    }
    false
}
