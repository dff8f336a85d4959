//! `[cluster]`: a server that is one of several.

use std::net::SocketAddr;

use quintet_policy::Sharing;

use super::schema::settings;
use super::units::show_duration;

settings! {
    /// Settings of `[cluster]`.
    #[derive(Clone)]
    pub struct Cluster, CLUSTER: |config| config.cluster;
    fixed "nats" List(nats: Vec::new())
        "NATS servers with JetStream, the nearest first, such as [\"nats://a:4222\", \
         \"nats://b:4222\"]; empty: no cluster.";
    fixed "name" Text(name: "quintet".to_owned())
        "The cluster's name, part of every subject and stream: letters, digits, - and _.";
    fixed "node" Text(node: String::new())
        "Unique name of this node: up to 255 letters, digits, -, _ and dots. Empty: the host's.";
    fixed "listen" Text(listen: "127.0.0.1:4600".to_owned())
        "Address for clients that other nodes pass on.";
    fixed "advertise" Text(advertise: String::new())
        "The same address as other nodes reach it, HOST:PORT. Empty: as listen.";
    fixed "replicas" Number(replicas: 3, 1, 5)
        "NATS servers that keep each entry, 1 to 5. With fewer than 3 the loss of one stops or \
         loses everything; this needs allow_unsafe.";
    fixed "placement_tags" List(placement_tags: Vec::new())
        "Tags that each NATS server of the log must have.";
    fixed "heartbeat" Duration(heartbeat_ms: 500)
        "Longest time between appends of an owner; at most half of lease.";
    fixed "lease" Duration(lease_ms: 2000)
        "How long an owner may reply after it sent an entry that was acknowledged.";
    fixed "takeover_after" Duration(takeover_after_ms: 3000)
        "Silence of the owner after which another node takes over; at least one and a half times \
         lease.";
    fixed "handover_wait" Duration(handover_wait_ms: 10_000)
        "How long an owner that is stopped, moved or drained waits for acknowledgements; then it \
         ends and reports a possible loss.";
    fixed "window" Number(window: 32, 1, 64)
        "Entries on their way to JetStream at once, 1 to 64.";
    fixed "unacked_max" Bytes(unacked_max: 16 << 20, 1 << 20, 1 << 40)
        "With more bytes of requests that are decided and not acknowledged, the server stops \
         reading from clients.";
    fixed "reads" Text(reads: "lease".to_owned())
        "Replies without an append (empty queue, errors, peeks, statistics): \"lease\": at once \
         while the owner has its lease; \"log\": after an entry that was sent later is \
         acknowledged, which takes a round trip and trusts no clock.";
    fixed "groups" Number(groups: 1, 1, 256)
        "Groups of queues, each with its own owner. This version supports 1.";
    fixed "near" Text(near: String::new())
        "Name of the NATS server on this node's machine (server_name). The node connects to it \
         first, and it does not lead the stream while this node owns or is drained. Empty: \
         unknown.";
    fixed "credentials" Text(credentials: String::new())
        "File with credentials for NATS. Empty: none.";
    fixed "user" Text(user: String::new())
        "User of NATS; password_file has its password. Empty: none.";
    fixed "password_file" Text(password_file: String::new())
        "File with the password of user, in its first line.";
    fixed "tls_ca" Text(tls_ca: String::new())
        "Authorities of the NATS servers' certificates. Empty: TLS only for addresses with tls://.";
    fixed "tls_cert" Text(tls_cert: String::new())
        "Certificate for the NATS servers. Empty: none.";
    fixed "tls_key" Text(tls_key: String::new())
        "Key of tls_cert.";
    fixed "peer_tls_ca" Text(peer_tls_ca: String::new())
        "Authorities of the nodes' certificates: both sides of a link between nodes show one. \
         Empty: no protection, an error beyond this machine.";
    fixed "peer_tls_cert" Text(peer_tls_cert: String::new())
        "Certificate of this node, with its name in advertise.";
    fixed "peer_tls_key" Text(peer_tls_key: String::new())
        "Key of peer_tls_cert.";
    fixed "peer_insecure" Flag(peer_insecure: false)
        "Links between nodes are not protected, also beyond this machine: a program that reaches \
         them has the rights of all clients.";
    fixed "monitor" List(monitor: Vec::new())
        "Monitoring addresses of all NATS servers, HOST:PORT, to check that each syncs every \
         message (sync_interval: always) and has no damaged copy of the log. Empty: a warning \
         instead.";
    fixed "nats_version_min" Text(nats_version_min: "2.15.1".to_owned())
        "Oldest nats-server that a node starts with. Servers before 2.15.1 lose acknowledged \
         messages at a power failure and from a damaged disk.";
    fixed "allow_unsafe" Flag(allow_unsafe: false)
        "Start although messages may be lost: fewer than 3 replicas, servers that do not sync each \
         message. For tests.";
}

impl Cluster {
    /// This server is one of several.
    pub fn is_on(&self) -> bool {
        !self.nats.is_empty()
    }

    /// How the log is used.
    pub fn sharing(&self) -> Sharing {
        Sharing {
            unacked_max: self.unacked_max,
            reads_by_log: self.reads == "log",
        }
    }

    /// This node's name.
    pub fn node(&self) -> String {
        if self.node.is_empty() {
            let name = rustix::system::uname();
            return name.nodename().to_string_lossy().into_owned();
        }
        self.node.clone()
    }

    /// Where other nodes reach this one.
    pub fn peer_address(&self) -> &str {
        match self.advertise.as_str() {
            "" => &self.listen,
            advertise => advertise,
        }
    }

    /// Faults of these settings, a line each.
    pub fn faults(&self) -> Vec<String> {
        let (name, node, reads, listen) = (&self.name, self.node(), &self.reads, &self.listen);
        let (groups, replicas, version) = (self.groups, self.replicas, &self.nats_version_min);
        let times = [self.heartbeat_ms, self.lease_ms, self.takeover_after_ms];
        let [heartbeat, lease, takeover_after] = times.map(show_duration);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_number = |text: &str| text.parse::<u64>().is_ok();
        let files = [&self.peer_tls_ca, &self.peer_tls_cert, &self.peer_tls_key];
        let named = files.iter().filter(|file| !file.is_empty()).count();
        let near = |at: SocketAddr| at.ip().is_loopback();
        let local = listen.parse::<SocketAddr>().is_ok_and(near);
        let mut faults = Vec::new();
        macro_rules! faults_if {
            ($($wrong:expr => $says:literal;)*) => {
                $(if $wrong { faults.push(format_args!($says).to_string()); })*
            };
        }
        faults_if! {
            !(1..=64).contains(&name.len()) || !name.chars().all(plain) =>
                "name = {name:?} takes 1 to 64 letters, digits, - and _";
            !(1..=255).contains(&node.len()) || !node.chars().all(|c| plain(c) || c == '.') =>
                "node = {node:?} takes 1 to 255 letters, digits, -, _ and dots";
            version.split('.').count() != 3 || !version.split('.').all(is_number) =>
                "nats_version_min = {version:?} takes a version, such as \"2.15.1\"";
            self.peer_address().len() > usize::from(u16::MAX) =>
                "advertise is longer than 65535 bytes";
            self.heartbeat_ms == 0 || 2 * self.heartbeat_ms > self.lease_ms =>
                "heartbeat = {heartbeat} is more than half of lease = {lease}, or 0";
            2 * self.takeover_after_ms < 3 * self.lease_ms =>
                "takeover_after = {takeover_after} is less than one and a half times lease = {lease}";
            replicas < 3 && !self.allow_unsafe =>
                "replicas = {replicas} survives the loss of no server: set 3, or allow_unsafe = true";
            !["lease", "log"].contains(&reads.as_str()) =>
                "reads = {reads:?} takes \"lease\" or \"log\"";
            groups != 1 =>
                "groups = {groups}: this version knows one group of queues, groups = 1";
            self.user.is_empty() != self.password_file.is_empty() =>
                "user and password_file go together: set both";
            self.tls_cert.is_empty() != self.tls_key.is_empty() =>
                "tls_cert and tls_key go together: set both";
            named % 3 != 0 =>
                "peer_tls_ca, peer_tls_cert and peer_tls_key go together: set all three";
            !local && named == 0 && !self.peer_insecure =>
                "listen = {listen:?} is open to other machines: set peer_tls_ca, peer_tls_cert and \
                 peer_tls_key, or peer_insecure = true";
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;

    fn faults(text: &str) -> String {
        let config = from_text(&format!("[cluster]\nnats = ['nats://a']\n{text}"));
        config.expect("read").cluster.faults().join("\n")
    }

    #[test]
    fn wrong_values_and_combinations_are_named() {
        assert_eq!(faults("node = 'a'"), "");
        for (text, says) in [
            ("name = 'a b'", "name"),
            ("node = 'a b'", "node"),
            ("heartbeat = '2s'", "heartbeat"),
            ("heartbeat = 0", "heartbeat"),
            ("takeover_after = '2s'", "takeover_after"),
            ("replicas = 1", "allow_unsafe"),
            ("nats_version_min = 'new'", "nats_version_min"),
            ("reads = 'disk'", "reads"),
            ("groups = 2", "groups = 1"),
            ("user = 'a'", "password_file"),
            ("tls_key = 'a'", "tls_cert"),
            ("peer_tls_key = 'a'", "peer_tls_ca"),
            ("listen = '0.0.0.0:4600'", "peer_insecure"),
        ] {
            let faults = faults(&format!("{text}\n"));
            assert!(faults.contains(says), "{text}: {faults}");
        }
        let long = format!("node = '{}'", "x".repeat(256));
        assert!(faults(&long).contains("255"));
        let long = format!("advertise = '{}'", "x".repeat(70_000));
        assert!(faults(&long).contains("65535"));
        let several = faults("heartbeat = '2s'\nreplicas = 1");
        assert_eq!(several.lines().count(), 2, "{several}");
    }
}
