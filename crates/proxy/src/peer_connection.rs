//! The owner's end of peer connections. One that names the client it brings is handed on as that
//! client's connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Owners;
use crate::counts::count;
use crate::line::{Answer, LINE_MAX, Purpose, Question, Tunnel, Wrong};
use crate::shared::{Client, Intake, Shared, Stream};
use crate::socket::{Plain, in_thread, set_up_peer_socket};

/// A peer connection states its purpose in this time, its handshake included.
pub(crate) const SAY: Duration = Duration::from_secs(2);

/// Questions that are answered at a time.
static QUESTIONS: Semaphore = Semaphore::const_new(8);

/// Sees to one connection of another node, or of a tool. `place` is among those that have not said
/// what they are for.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: Plain,
    peer: Option<SocketAddr>,
    place: OwnedSemaphorePermit,
) {
    if let Err(error) = serve_one(&shared, stream, place).await {
        count(&shared.counts.refused);
        match peer {
            Some(peer) => tracing::debug!("peer connection from {peer}: {error}"),
            None => tracing::debug!("peer connection from this machine: {error}"),
        }
    }
}

async fn serve_one(shared: &Shared, stream: Plain, place: OwnedSemaphorePermit) -> io::Result<()> {
    match stream {
        Plain::Right(mut stream) => {
            let request = timeout(SAY, hear(shared, &mut stream, true)).await??;
            drop(place);
            match request {
                // A peer that reaches the node's own socket may have its listeners as well.
                Purpose::Tunnel(_) => refuse(&mut stream, "clients come by the listeners").await,
                Purpose::Node(question) => write_line(shared, &mut stream, question).await,
            }
        }
        Plain::Left(stream) => {
            set_up_peer_socket(&stream)?;
            match &shared.settings.tls {
                None => plain(shared, stream).await,
                Some(tls) => {
                    let mut stream = timeout(SAY, tls.accept.accept(stream)).await??;
                    let request = timeout(SAY, hear(shared, &mut stream, false)).await??;
                    drop(place);
                    match request {
                        Purpose::Tunnel(tunnel) => {
                            let Some(intake) = admit(shared, &tunnel, &mut stream).await? else {
                                return Ok(());
                            };
                            let (mut ours, theirs) = UnixStream::pair()?;
                            count(&shared.counts.peer_connections);
                            intake.take(Client {
                                stream: Stream::Unix(theirs.into_std()?),
                                tunnel,
                            });
                            // How it ends is the two ends' affair.
                            tokio::io::copy_bidirectional(&mut stream, &mut ours)
                                .await
                                .ok();
                            Ok(())
                        }
                        Purpose::Node(question) => write_line(shared, &mut stream, question).await,
                    }
                }
            }
        }
    }
}

async fn plain(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    match timeout(SAY, hear(shared, &mut stream, false)).await?? {
        Purpose::Tunnel(mut tunnel) => {
            // Anybody could have written that.
            tunnel.principal.clear();
            let Some(intake) = admit(shared, &tunnel, &mut stream).await? else {
                return Ok(());
            };
            count(&shared.counts.peer_connections);
            intake.take(Client {
                stream: Stream::Tcp(stream.into_std()?),
                tunnel,
            });
            Ok(())
        }
        Purpose::Node(question) => write_line(shared, &mut stream, question).await,
    }
}

/// Reads the purpose of the peer connection. Another connection gets an error, and is an
/// error here.
async fn hear<S>(shared: &Shared, stream: &mut S, local: bool) -> io::Result<Purpose>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let wrong = match line(stream).await {
        Ok(line) => match Purpose::read(&line, shared.settings.cluster, local) {
            Ok(ask) => return Ok(ask),
            Err(wrong) => wrong,
        },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Wrong::NoPeerConnection,
        Err(error) => return Err(error),
    };
    refuse(stream, &wrong.to_string()).await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, wrong))
}

async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, why: &str) -> io::Result<()> {
    let answer = Answer::Refused(why.to_owned());
    stream.write_all(answer.line().as_bytes()).await?;
    stream.shutdown().await
}

/// Answers a tunnel; `Some`: with yes, and to this its bytes go.
async fn admit<S: AsyncWrite + Unpin>(
    shared: &Shared,
    tunnel: &Tunnel,
    stream: &mut S,
) -> io::Result<Option<Arc<dyn Intake>>> {
    let owners = shared.owners.borrow().clone();
    let closed = shared.closed.load(Ordering::SeqCst);
    let intake = shared.intake.get().filter(|_| !closed);
    let answer = match (&owners, intake) {
        (Owners::Us(_), Some(intake)) => match intake.admits(tunnel) {
            Ok(true) => {
                stream.write_all(Answer::Ok.line().as_bytes()).await?;
                stream.flush().await?;
                return Ok(Some(Arc::clone(intake)));
            }
            Ok(false) => Answer::Nobody,
            Err(why) => Answer::Refused(why),
        },
        (Owners::Other(hint), _) => Answer::Owner(hint.epoch, hint.address.clone()),
        (Owners::Us(_), None) | (Owners::Nobody, _) => Answer::Nobody,
    };
    stream.write_all(answer.line().as_bytes()).await?;
    stream.shutdown().await?;
    Ok(None)
}

/// Answers what is no tunnel.
async fn write_line<S: AsyncWrite + Unpin>(
    shared: &Shared,
    stream: &mut S,
    question: Question,
) -> io::Result<()> {
    let node = Arc::clone(&shared.node);
    let _order = match question {
        Question::Status => None,
        Question::Order(_) => shared.orders.acquire().await.ok(),
    };
    // The node may ask others first.
    let answered = in_thread(&QUESTIONS, move || match question {
        Question::Status => node.status(),
        Question::Order(words) => node.order(&words),
    });
    let mut answered = answered.await?;
    answered.push('\n');
    stream.write_all(answered.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads a line, without its end. Nothing may follow it: a peer sends no more before the answer.
///
/// # Errors
/// `InvalidData` for what is no such line.
pub(crate) async fn line<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<String> {
    line_of(stream, LINE_MAX).await
}

/// The same, of a line with so many bytes at most.
pub(crate) async fn line_of<S: AsyncRead + Unpin>(
    stream: &mut S,
    most: usize,
) -> io::Result<String> {
    let (line, more) = line_and_more(stream, most).await?;
    let whole = more.is_empty().then_some(line);
    whole.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads a line, and what came with it from behind it: both have so many bytes at most.
///
/// # Errors
/// `InvalidData` for what is no such line.
pub(crate) async fn line_and_more<S: AsyncRead + Unpin>(
    stream: &mut S,
    most: usize,
) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = vec![0; most];
    let mut len = 0;
    loop {
        let read = stream.read(&mut bytes[len..]).await?;
        if read == 0 {
            let kind = match len < most {
                true => io::ErrorKind::UnexpectedEof,
                false => io::ErrorKind::InvalidData,
            };
            return Err(kind.into());
        }
        len += read;
        if let Some(end) = bytes[..len].iter().position(|byte| *byte == b'\n') {
            let more = bytes[end + 1..len].to_vec();
            bytes.truncate(end);
            let text = String::from_utf8(bytes).ok();
            let text = text.ok_or(io::ErrorKind::InvalidData)?;
            return Ok((text, more));
        }
    }
}
