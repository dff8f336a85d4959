//! The holder of a lease, as far as it is known.

use std::collections::HashMap;

use quintet_client::Share;
use quintet_client::shown::plain;
use quintet_types::{
    Bound, BulkOp, ClientId, Cursor, Lease, ListState, Message, MessageId, Name, State,
};
use serde::Deserialize;

use super::Api;
use super::problem::Problem;
use quintet_http::Requester;

/// A connection, as the server shows it.
#[derive(Clone, Debug, Deserialize)]
struct Connection {
    id: u64,
    protocol: String,
    peer: Option<String>,
    user: String,
    worker: Option<String>,
    leases: u64,
}

/// The connections there are, for those who may see them.
#[derive(Default)]
pub struct Holders {
    by_id: HashMap<u64, Connection>,
    /// Their share of the memory.
    _rooms: Vec<Option<Share>>,
}

/// The connection and worker that have a lease, as far as the requester may see them.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    pub connection: Option<u64>,
    pub protocol: Option<String>,
    pub peer: Option<String>,
    pub(crate) user: Option<String>,
    /// As the client calls itself.
    pub(crate) worker: Option<String>,
    /// All of it, for people.
    pub text: String,
}

impl Holders {
    /// Leases of a connection; `None`: there is no such connection.
    pub(crate) fn leases(&self, connection: u64) -> Option<u64> {
        Some(self.by_id.get(&connection)?.leases)
    }

    /// The connection that is this client, in words, if it is there.
    pub(super) fn describe(&self, client_id: ClientId) -> Option<String> {
        let connection = self.by_id.get(&client_id.0)?;
        Some(format!(
            "connection {} ({})",
            connection.id, connection.protocol
        ))
    }

    fn get(&self, client_id: ClientId) -> Option<&Connection> {
        self.by_id
            .get(&client_id.0)
            .filter(|_| client_id != ClientId(0))
    }
}

impl Api {
    /// The connections, for users that may see them.
    ///
    /// # Errors
    /// The server stops, or there is no room for the list.
    pub async fn holders(&self, requester: &Requester) -> Result<Holders, Problem> {
        if !requester.may_server() {
            return Ok(Holders::default());
        }
        let (mut holders, mut after) = (Holders::default(), None);
        loop {
            let (list, next, _room) = self.connections(after).await?;
            holders._rooms.push(self.room(list.len() as u64)?);
            let page: Vec<Connection> = serde_json::from_str(&list)
                .map_err(|error| Problem::internal(format!("connections: {error}")))?;
            after = page.last().map(|one| one.id).filter(|_| next.is_some());
            let page = page.into_iter().map(|one| (one.id, one));
            holders.by_id.extend(page);
            if after.is_none() {
                return Ok(holders);
            }
        }
    }

    /// The connections, asked for where they are not known yet.
    pub(super) async fn holders_once<'a>(
        &self,
        requester: &Requester,
        known: &'a mut Option<Holders>,
    ) -> &'a Holders {
        if known.is_none() {
            *known = Some(self.holders(requester).await.unwrap_or_default());
        }
        known.get_or_insert_default()
    }

    /// The client that holds or held a lease of this kind.
    pub fn holder(
        &self,
        requester: &Requester,
        (client_id, bound): (ClientId, Bound),
        all: &Holders,
    ) -> Holder {
        let is_bound = bound == Bound::Connection && client_id != ClientId(0);
        let mut holder = Holder {
            connection: is_bound.then_some(client_id.0),
            ..Holder::default()
        };
        if let Some(connection) = all.get(client_id) {
            holder.connection = Some(connection.id);
            holder.protocol = Some(connection.protocol.clone());
            holder.peer.clone_from(&connection.peer);
            holder.user = Some(connection.user.clone()).filter(|user| !user.is_empty());
            holder.worker.clone_from(&connection.worker);
        } else if let Some(consumer) = self.app.settings().clients.consumers.of(client_id) {
            holder.protocol = Some(consumer.protocol.to_owned());
            let user = consumer.user.filter(|_| requester.may_server());
            holder.user = user.map(|user| user.to_string());
            holder.worker = consumer.worker.map(String::from);
        }
        let named = |word: &str, text: &Option<String>| {
            text.as_ref()
                .map(|text| format!("{word} {}", plain(text.as_bytes())))
        };
        let connection = holder.connection.map(|id| match &holder.protocol {
            Some(protocol) => format!("connection {id} ({protocol})"),
            None => format!("connection {id}"),
        });
        let known = [
            named("worker", &holder.worker),
            named("user", &holder.user),
            connection,
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        holder.text = match (known.is_empty(), bound) {
            (false, _) => known.join(", "),
            (true, _) if client_id == ClientId(0) => {
                "a client that took it before the server started".to_owned()
            }
            (true, Bound::Process) => "a script".to_owned(),
            (true, Bound::Connection | Bound::Time) => "a client with its lease's token".to_owned(),
        };
        holder
    }

    /// The lease of a reserved message; `None`: it has none any more.
    ///
    /// # Errors
    /// The shards' error.
    pub(crate) async fn lease_of(
        &self,
        requester: &Requester,
        queue: &Name,
        id: MessageId,
    ) -> Result<Option<Lease>, Problem> {
        // Reserved messages are listed by their ids.
        let before = MessageId(id.0.saturating_sub(1));
        let bulk_op = BulkOp {
            after: Some(Cursor {
                not_selectable: false,
                order: (0, 0, before),
            }),
            ..BulkOp::show(queue.clone(), ListState::Reserved, 1)
        };
        let (bulk_done, _room) = self.bulk_done(requester, bulk_op).await?;
        let mut found = bulk_done.messages.iter().zip(&bulk_done.leases);
        let found = found.find(|(message, _)| message.id == id);
        Ok(found.map(|(_, lease)| *lease))
    }

    /// The holder of a reserved message, and its lease. `known`: the connections, for what asks
    /// for them next.
    pub async fn held_by(
        &self,
        requester: &Requester,
        message: &Message,
        queue: &Name,
        known: &mut Option<Holders>,
    ) -> Option<(Holder, Lease)> {
        if message.state != State::Reserved {
            return None;
        }
        let lease = self.lease_of(requester, queue, message.id).await.ok()??;
        let all = self.holders_once(requester, known).await;
        let by = (lease.client_id, lease.bound);
        Some((self.holder(requester, by, all), lease))
    }

    /// Why something is not done to a message: that it is reserved is said so.
    pub async fn why_not(&self, requester: &Requester, id: MessageId, problem: Problem) -> Problem {
        if problem.code != "not_found" {
            return problem;
        }
        let Ok((message, queue)) = self.message(requester, id).await else {
            let went = self.how_it_went(requester, id).await;
            let detail = went.unwrap_or_else(|| problem.detail.clone());
            return Problem { detail, ..problem };
        };
        match self.held_by(requester, &message, &queue, &mut None).await {
            Some((holder, _)) => Problem::reserved(id, &holder.text),
            None => problem,
        }
    }
}
