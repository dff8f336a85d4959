//! Settings of a listener.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use quintet_client::ByteBudget;
use quintet_tls::Secure;
pub use quintet_types::HttpLimits as Limits;

use crate::clients::Clients;
use crate::elsewhere::Elsewhere;
use crate::gate::Gate;
use crate::guard::{Guard, Logins, User};
use crate::replies::TellReply;
use crate::streams::StreamCounts;

quintet_types::defaults! {
    /// Settings of one HTTP listener.
    #[derive(Clone)]
    pub struct Settings {
        /// Path everything lives under; begins and ends with `/`.
        pub relative_root: String = "/".to_owned(),
        /// Text that a browser shows when it asks for a login.
        pub realm: String = "RQ".to_owned(),
        /// Users who may log in; empty: no login is requested.
        pub users: Vec<User> = Vec::new(),
        /// Somebody else who knows who may, asked before `users`.
        pub logins: Option<Logins> = None,
        /// The server's users, who count instead of both if there are any.
        pub gate: Option<Arc<dyn Gate>> = None,
        /// Peers that may ask; empty: all. Unix sockets have rights of their own.
        pub allowed_ips: Vec<IpNet> = Vec::new(),
        /// Peers whose connections are not counted by address: they bring those of many.
        pub trusted_proxies: Vec<IpNet> = Vec::new(),
        /// Host names this server is called by, beside addresses, `localhost` and
        /// the machine's own; `*`: any. A request for another host is refused, as
        /// it comes from a page whose name was pointed at this machine.
        pub hosts: Vec<String> = Vec::new(),
        /// Queues may be made and deleted.
        pub allow_new_queue: bool = false,
        /// Memory for forms on their way in and replies on their way out, together with all other
        /// connections; `None`: no bound.
        pub memory: Option<Arc<ByteBudget>> = None,
        /// TLS of its TCP connections; `None`: they are plain.
        pub tls: Option<Secure> = None,
        /// Receiver of a report of each reply.
        pub replied: Option<Arc<TellReply>> = None,
        /// Where event streams are counted.
        pub stream_counts: Arc<StreamCounts> = Arc::default(),
        /// Where connections are kept count of.
        pub clients: Arc<Clients> = Arc::default(),
        /// Another protocol's names of queues.
        pub elsewhere: Option<Arc<dyn Elsewhere>> = None,
        /// Where the listener is, as its clients reach it.
        pub address: Arc<str> = Arc::from(""),
        pub limits: Limits = Limits::default(),
    }
}

impl Settings {
    /// The rules of a listener with these settings; `short_hosts`: of [`Guard`].
    pub fn guard(&self, short_hosts: bool) -> Guard {
        Guard {
            users: self.users.clone(),
            logins: self.logins.clone(),
            gate: self.gate.clone(),
            allowed_ips: self.allowed_ips.clone(),
            hosts: self.hosts.clone(),
            short_hosts,
        }
    }

    /// True for an address whose connections are not counted.
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || self.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}
