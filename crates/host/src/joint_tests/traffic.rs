//! Work of clients in a run.

use std::sync::{Arc, Weak};
use std::time::Duration;

use quintet_cluster::World as _;
use quintet_sim::history::{Answer, CallId, ClientRequest};
use quintet_types::{Command, Outcome};

use super::node::Node;
use super::run::{Run, State};
use crate::locked;

/// Messages that clients leave about.
const MESSAGES: usize = 10;

impl Run {
    /// A client's turn.
    pub(super) fn client(&self, number: usize) {
        let wait = self.client_turn(number);
        if let Some(wait) = wait {
            self.after(Duration::from_millis(wait), move |run| run.client(number));
        }
    }

    fn client_turn(&self, number: usize) -> Option<u64> {
        let state = &mut *locked(&self.state);
        let think = 20 + state.random.below(280);
        if let Some(requested) = &mut state.clients[number].requested {
            requested.patience = requested.patience.saturating_sub(1);
            if requested.patience == 0 {
                self.hang_up(state, number);
            }
            return Some(think);
        }
        if state.still {
            self.hang_up(state, number);
            return None;
        }
        if self.ground.world.now() < state.lull {
            return Some(think);
        }
        if state.random.chance(1, 60) {
            self.hang_up(state, number);
        }
        let Some((connection, life)) = self.connect(state, number) else {
            return Some(think);
        };
        // Every other one only takes.
        let chance = match state.there.len() {
            _ if number % 2 == 1 => 0,
            ..MESSAGES => 14,
            _ => 1,
        };
        let body = state.next();
        let large = self.ground.large;
        let (queue, ask, command) =
            state.clients[number].next(&mut state.random, body, chance, large);
        let call = state.history.begin_call(connection, queue, ask);
        let patience = 5 + state.random.below(40);
        state.clients[number].asks(call, queue, ask, patience);
        if let ClientRequest::Finish(body) = ask {
            state.there.remove(&body);
        }
        if let Some(node) = state.life(life) {
            self.send(state, &node, number, connection, call, command);
        }
        Some(think)
    }

    /// The client's connection, or a new one to the node that takes it.
    pub(super) fn connect(&self, state: &mut State, number: usize) -> Option<(u64, u64)> {
        if state.clients[number].connection.is_none() {
            let (life, _) = state.serving()?;
            let connection = state.next();
            state.open.insert(connection, life);
            state.clients[number].connection = Some((connection, life));
        }
        state.clients[number].connection
    }

    pub(super) fn send(
        &self,
        state: &mut State,
        node: &Arc<Node>,
        number: usize,
        connection: u64,
        call: CallId,
        command: Command,
    ) {
        let (there, back) = (state.random.below(1_500), state.random.below(1_500));
        let run = Weak::clone(&self.itself);
        let callback = move |outcome: Outcome, epoch| {
            if let Some(run) = run.upgrade() {
                let back = Duration::from_micros(back);
                run.after(back, move |run| run.answered(number, call, &outcome, epoch));
            }
        };
        let to = Arc::clone(node);
        let arrive = move || {
            let node = Arc::clone(&to);
            to.process
                .later(move || node.ask(connection, command, Box::new(callback)));
        };
        self.ground.world.plan(Duration::from_micros(there), arrive);
    }

    /// Asks as a client of its own, and tells what came of it.
    pub(super) fn submit(
        &self,
        node: &Arc<Node>,
        client_id: u64,
        command: Command,
        callback: impl FnOnce(&Self, &Outcome) + Send + 'static,
    ) {
        let run = Weak::clone(&self.itself);
        let callback = move |outcome: Outcome, _| {
            if let Some(run) = run.upgrade() {
                run.after(Duration::ZERO, move |run| callback(run, &outcome));
            }
        };
        let to = Arc::clone(node);
        self.ground.world.plan(Duration::ZERO, move || {
            let node = Arc::clone(&to);
            to.process
                .later(move || node.ask(client_id, command, Box::new(callback)));
        });
    }

    fn answered(&self, number: usize, call: CallId, outcome: &Outcome, epoch: u64) {
        let state = &mut *locked(&self.state);
        let Some((ask, answer)) = state.clients[number].answered(call, outcome) else {
            return;
        };
        state.history.answered(call, epoch, answer);
        match (ask, answer) {
            (ClientRequest::Put(body), Answer::Stored(_)) => {
                state.there.insert(body);
            }
            (ClientRequest::Take { removes: true }, Answer::Got(body)) => {
                state.there.remove(&body);
            }
            // A client that left may have taken one: clients would store nothing in its place.
            (_, Answer::Empty) if state.calm => {
                state.there.pop_first();
            }
            _ => {}
        }
    }

    /// The client goes, and tells the node, which may hear of it late.
    pub(super) fn hang_up(&self, state: &mut State, number: usize) {
        let Some((connection, life)) = state.clients[number].lose() else {
            return;
        };
        state.history.closed(connection);
        let Some(node) = state.life(life) else {
            return;
        };
        let run = Weak::clone(&self.itself);
        let there = Duration::from_micros(state.random.below(1_500));
        self.ground.world.plan(there, move || {
            let of = Arc::clone(&node);
            node.process.later(move || {
                of.close(connection);
                if let Some(run) = run.upgrade() {
                    let state = &mut *locked(&run.state);
                    state.open.remove(&connection);
                    state.history.ended(connection);
                }
            });
        });
    }
}
