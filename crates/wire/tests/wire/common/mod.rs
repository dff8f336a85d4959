//! A server in memory: sessions of one listener before one real engine, with
//! the clock in the test's hand. It treats sessions as the server does: it
//! decodes several requests, asks the engine about them, then encodes.

use std::collections::{BTreeMap, VecDeque};

use quintet_sim::transcript::{Link, Received, Setup};
use quintet_sim::world::World;
use quintet_types::{
    Answer, Caller, ClientId, Command, Delivery, LargeBody, Ms, Name, Outcome, Overrides, Pattern,
    Principal, ServerStats, Settings, StatsOf, StatsReply,
};
use quintet_wire::{
    ClientRequest, Env, HalfClose, HostRequest, Listener, LoginRefused, Logins, Next, Options,
    Output, Protocol, ServerResponse, Session, Step, Tally, Value, Workers,
};

/// Requests decoded before the first is answered.
const BATCH: usize = 64;

/// When the tests' time begins.
const START: Ms = Ms(1_700_000_000_000);

/// The server.
pub(crate) struct Host {
    listener: Box<dyn Listener>,
    world: World,
    tally: Tally,
    grain_ms: u64,
    connections: BTreeMap<u8, Connection>,
    clients: u64,
    bodies: BTreeMap<u64, Vec<u8>>,
    workers: Workers,
    /// Outcomes for those who waited, handed over between turns.
    deliveries: VecDeque<Delivery>,
    /// Sessions that are as just opened are replaced by new ones.
    renews: bool,
    renewed: usize,
}

struct Connection {
    session: Box<dyn Session>,
    client_id: ClientId,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Requests decoded and not yet put to the engine.
    asks: VecDeque<ClientRequest>,
    /// A body on its way: its length, and what has come.
    stream: Option<(u64, Vec<u8>)>,
    /// A take waits.
    waiting: bool,
    /// The client has closed its sending side.
    shut: bool,
    /// The server has closed it.
    closed: bool,
}

impl Host {
    /// A server with one listener of `protocol`, set up as a transcript says.
    /// Its clock may be late by `grain_ms` (1 in the real server).
    pub(crate) fn new(protocol: &Protocol, setup: &[Setup], grain_ms: u64) -> Result<Self, String> {
        let mut options = Options::new(protocol.options);
        let mut settings = Settings {
            clock_grain_ms: grain_ms,
            ..Settings::default()
        };
        for line in setup {
            match line {
                Setup::Option { name, value } => options.set(name, value_of(value))?,
                Setup::Queue { queue, key, value } => {
                    settings
                        .rules
                        .push((Pattern::new(queue), overrides(key, value)?));
                }
            }
        }
        Ok(Self {
            listener: (protocol.listener)(&options)?,
            world: World::with(settings).at(START),
            tally: Tally::new(),
            grain_ms,
            connections: BTreeMap::new(),
            clients: 0,
            bodies: BTreeMap::new(),
            workers: Workers::new(),
            deliveries: VecDeque::new(),
            renews: false,
            renewed: 0,
        })
    }

    /// From now on a session that is as just opened is replaced by a new one.
    pub(crate) fn renew_sessions(&mut self) {
        self.renews = true;
    }

    /// How many were.
    pub(crate) fn renewed(&self) -> usize {
        self.renewed
    }

    /// Whether a connection's session is as just opened.
    pub(crate) fn is_as_opened(&mut self, number: u8) -> bool {
        self.connection(number).session.is_as_opened()
    }

    fn renew(&mut self) {
        for connection in self.connections.values_mut() {
            let read = connection.input.is_empty() && connection.stream.is_none();
            let answered = connection.asks.is_empty() && !connection.waiting;
            let open = !connection.shut && !connection.closed;
            if read && answered && open && connection.session.is_as_opened() {
                connection.session = self.listener.open();
                self.renewed += 1;
            }
        }
    }

    fn submit(&mut self, client_id: ClientId, command: Command) -> Option<ServerResponse> {
        let queue = match &command {
            Command::Take(take) => take.queues.first().cloned().unwrap_or_default(),
            _ => Name::default(),
        };
        let caller = Caller {
            client_id,
            principal: Principal(0),
        };
        match self.world.submit(caller, command) {
            Answer::Now(outcome, _) => Some(ServerResponse::Engine(outcome, queue)),
            Answer::Later => None,
        }
    }

    /// Hands outcomes to those who waited, and goes on with their input.
    fn deliver(&mut self) {
        loop {
            // In the order they came, whatever comes meanwhile.
            self.deliveries.extend(self.world.deliveries.drain(..));
            let Some(delivery) = self.deliveries.pop_front() else {
                return;
            };
            let Some(number) = self.number_of(delivery.to) else {
                continue;
            };
            let response = ServerResponse::Engine(delivery.outcome, delivery.queue);
            if delivery.standing {
                self.with(number, |connection, env, output| {
                    connection.session.deliver(&response, env, output)
                });
            } else {
                self.connection(number).waiting = false;
                self.encode(number, response);
            }
            self.turn(number);
        }
    }

    fn number_of(&self, client_id: ClientId) -> Option<u8> {
        self.connections
            .iter()
            .find(|(_, connection)| connection.client_id == client_id)
            .map(|(&number, _)| number)
    }

    fn connection(&mut self, number: u8) -> &mut Connection {
        self.connections.entry(number).or_insert_with(|| {
            self.clients += 1;
            Connection {
                session: self.listener.open(),
                client_id: ClientId(self.clients),
                input: Vec::new(),
                output: Vec::new(),
                asks: VecDeque::new(),
                stream: None,
                waiting: false,
                shut: false,
                closed: false,
            }
        })
    }

    /// Lets a session write, and keeps what it wrote.
    fn with(
        &mut self,
        number: u8,
        write: impl FnOnce(&mut Connection, &Env<'_>, &mut Output) -> Next,
    ) -> Next {
        let mut output = Output::new();
        let env = Env {
            now: self.world.now,
            tally: &self.tally,
            logins: Logins::Off,
        };
        let connection = self
            .connections
            .get_mut(&number)
            .expect("only open connections write");
        let next = write(connection, &env, &mut output);
        let mut from = 0;
        for (at, large) in output.large() {
            connection
                .output
                .extend_from_slice(&output.bytes()[from..*at]);
            connection
                .output
                .extend_from_slice(&self.bodies[&large.id()]);
            from = *at;
        }
        connection.output.extend_from_slice(&output.bytes()[from..]);
        next
    }

    fn encode(&mut self, number: u8, response: ServerResponse) {
        let next = self.with(number, |connection, env, output| {
            connection.session.encode(&response, env, output)
        });
        match next {
            Next::Done | Next::Noted(..) => {}
            Next::Close => self.hang_up(number),
            Next::Again(command) => {
                let client_id = self.connection(number).client_id;
                match self.submit(client_id, *command) {
                    Some(response) => self.encode(number, response),
                    None => self.connection(number).waiting = true,
                }
            }
        }
    }

    /// The server closes the connection.
    fn hang_up(&mut self, number: u8) {
        let connection = self.connection(number);
        connection.closed = true;
        connection.asks.clear();
        let client_id = connection.client_id;
        self.forget(client_id);
    }

    fn forget(&mut self, client_id: ClientId) {
        self.world.disconnect(client_id);
    }

    /// Works on a connection's input until it waits or nothing is left.
    fn turn(&mut self, number: u8) {
        while self.connections.contains_key(&number) {
            self.decode(number);
            let connection = self.connection(number);
            if connection.closed {
                return;
            }
            if connection.waiting || connection.asks.is_empty() {
                if connection.shut {
                    self.after_shut(number);
                }
                return;
            }
            self.answer(number);
        }
    }

    /// Decodes a batch of requests.
    fn decode(&mut self, number: u8) {
        let env = Env {
            now: self.world.now,
            tally: &self.tally,
            logins: Logins::Off,
        };
        let next_body = self.bodies.len() as u64 + 1;
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if connection.closed || connection.waiting {
            return;
        }
        while connection.asks.len() < BATCH {
            if let Some((len, body)) = &mut connection.stream {
                let missing = (*len as usize - body.len()).min(connection.input.len());
                body.extend(connection.input.drain(..missing));
                if (body.len() as u64) < *len {
                    return;
                }
                let large = LargeBody::new(next_body, *len, 0);
                self.bodies.insert(next_body, std::mem::take(body));
                connection.stream = None;
                connection.session.streamed(Ok(large));
            }
            match connection.session.decode(&connection.input, &env) {
                Step::More => return,
                Step::Skip { used } => {
                    assert!(used > 0, "a skip that skips nothing");
                    connection.input.drain(..used);
                }
                Step::Stream { used, len, .. } => {
                    connection.input.drain(..used);
                    connection.stream = Some((len, Vec::new()));
                    if !connection.asks.is_empty() {
                        // One body at a time; what came before it goes first.
                        return;
                    }
                }
                Step::ClientRequest { used, ask } => {
                    connection.input.drain(..used);
                    let last = matches!(
                        ask,
                        ClientRequest::Close
                            | ClientRequest::EngineAlone(_)
                            | ClientRequest::Unknown(_)
                            | ClientRequest::Worker(_)
                            | ClientRequest::Proof(_)
                            | ClientRequest::Host(
                                HostRequest::Listener | HostRequest::Stats | HostRequest::Noted(..)
                            )
                    );
                    connection.asks.push_back(ask);
                    if last {
                        return;
                    }
                }
            }
        }
    }

    /// Answers the decoded requests, as far as none waits.
    fn answer(&mut self, number: u8) {
        let connection = self.connection(number);
        let client_id = connection.client_id;
        let mut response = Vec::new();
        let mut close = false;
        while let Some(ask) = self.connection(number).asks.pop_front() {
            let or_close = matches!(ask, ClientRequest::EngineOrClose(_));
            match ask {
                ClientRequest::Engine(command)
                | ClientRequest::EngineOrClose(command)
                | ClientRequest::EngineAlone(command)
                | ClientRequest::EngineSynced(command) => match self.submit(client_id, command) {
                    Some(answer) => {
                        close = or_close
                            && matches!(answer, ServerResponse::Engine(Outcome::Refused(_), _));
                        response.push(answer);
                    }
                    None => {
                        self.connection(number).waiting = true;
                        break;
                    }
                },
                ClientRequest::Host(ask) => response.push(self.host(ask)),
                ClientRequest::Worker(ask) => {
                    response.push(ServerResponse::Worker(
                        self.workers.answer(ask, self.world.now),
                    ));
                }
                ClientRequest::Proof(met) => {
                    let reported = if met {
                        Ok(())
                    } else {
                        Err(LoginRefused::Wrong)
                    };
                    response.push(ServerResponse::Login(reported));
                }
                ClientRequest::Own | ClientRequest::Unknown(_) | ClientRequest::Login(_) => {
                    response.push(ServerResponse::Own)
                }
                ClientRequest::Close => {
                    response.push(ServerResponse::Own);
                    close = true;
                }
            }
            if close {
                break;
            }
        }
        for response in response {
            if !self.connection(number).closed {
                self.encode(number, response);
            }
        }
        if close {
            self.hang_up(number);
        }
    }

    /// Closes connections whose clients were silent for too long, as the server
    /// does when it looks for them.
    fn close_overdue(&mut self) {
        let now = self.world.now;
        self.workers.forget_gone(now);
        let overdue = |connection: &Connection| connection.session.is_overdue(now);
        let numbers: Vec<u8> = (self.connections.iter())
            .filter(|(_, connection)| !connection.closed && overdue(connection))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            self.hang_up(number);
        }
    }

    /// All that a half-closed connection sent has been looked at.
    fn after_shut(&mut self, number: u8) {
        let open = self.connection(number);
        let (waiting, client_id) = (open.waiting, open.client_id);
        match open.session.half_closed() {
            HalfClose::StopWaiting if waiting => {
                self.submit(client_id, Command::StopWaiting);
                self.deliver();
            }
            HalfClose::LastWord if !waiting => self.encode(number, ServerResponse::Own),
            _ => {}
        }
        self.hang_up(number);
    }

    fn host(&mut self, ask: HostRequest) -> ServerResponse {
        match ask {
            HostRequest::Stats => ServerResponse::Server(Box::new(self.stats())),
            HostRequest::Foreign(_) => ServerResponse::Own,
            HostRequest::Reload | HostRequest::Listener | HostRequest::Noted(..) => {
                ServerResponse::Host(Ok(String::new()))
            }
            HostRequest::Shutdown => {
                ServerResponse::Host(Err("shutdown is not allowed".to_owned()))
            }
            HostRequest::Config => ServerResponse::Host(Ok("a = 1\nb = 2\n".to_owned())),
        }
    }

    fn stats(&mut self) -> ServerStats {
        let mut stats = ServerStats {
            version: "0.0.0",
            time_s: self.now_s(),
            numbers: ServerStats::TOLD.map(|name| (name.into(), 0.0)).into(),
            ..ServerStats::default()
        };
        for (name, number) in &mut stats.numbers {
            *number = match &**name {
                "connections" => self.connections.len() as f64,
                "connections_total" => self.clients as f64,
                "workers" => self.workers.count(self.world.now) as f64,
                _ => continue,
            };
        }
        self.tally.add_to(&mut stats.tally);
        let requested = self.submit(ClientId(0), Command::Stats(StatsOf::Shard));
        if let Some(ServerResponse::Engine(Outcome::Stats(reply), _)) = requested
            && let StatsReply::Shard(shard) = *reply
        {
            stats.shard = shard;
        }
        stats
    }
}

impl Link for Host {
    fn send(&mut self, connection: u8, bytes: &[u8]) {
        let open = self.connection(connection);
        if open.closed {
            return;
        }
        open.input.extend_from_slice(bytes);
        self.turn(connection);
        self.deliver();
        if self.renews {
            self.renew();
        }
    }

    fn receive(&mut self, connection: u8, into: &mut Vec<u8>) -> Received {
        if !self.connections.contains_key(&connection) {
            // The server may speak first.
            self.connection(connection);
            self.turn(connection);
        }
        let open = self.connection(connection);
        if !open.output.is_empty() {
            into.append(&mut open.output);
            Received::Some
        } else if open.closed {
            Received::End
        } else {
            Received::Nothing
        }
    }

    fn advance(&mut self, ms: u64) {
        // By a clock that may be late, so much has passed for certain only now.
        let target = self.world.now + ms + self.grain_ms;
        for round in 0.. {
            // Idle queues are looked for once a second.
            let most = 10_000 + ms / 1000;
            assert!(round < most, "ticks do not get anywhere");
            let deadline = self.world.engine.next_deadline();
            if deadline > target {
                break;
            }
            self.world.now = self.world.now.max(deadline);
            self.world.tick();
            self.deliver();
        }
        self.world.now = target;
        self.close_overdue();
    }

    fn close(&mut self, connection: u8) {
        if let Some(gone) = self.connections.remove(&connection) {
            self.forget(gone.client_id);
            self.deliver();
        }
    }

    fn shut(&mut self, connection: u8) {
        self.connection(connection).shut = true;
        self.turn(connection);
        self.deliver();
    }

    fn now_s(&self) -> u64 {
        self.world.now.0 / 1000
    }

    fn is_instant(&self) -> bool {
        true
    }
}

/// An option's value as a transcript writes it.
fn value_of(text: &str) -> Value<'_> {
    match (text, text.parse()) {
        ("true", _) => Value::Bool(true),
        ("false", _) => Value::Bool(false),
        (_, Ok(number)) => Value::Number(number),
        (_, Err(_)) => Value::Text(text),
    }
}

fn overrides(key: &str, value: &str) -> Result<Overrides, String> {
    let mut overrides = Overrides::default();
    let number = value
        .parse::<u64>()
        .map_err(|_| format!("{key} takes a number"));
    match key {
        "messages_max" => overrides.messages_max = Some(number?),
        "bytes_max" => overrides.bytes_max = Some(number?),
        "message_bytes_max" => overrides.message_bytes_max = Some(number?),
        "ttl_ms" => overrides.ttl_ms = Some(number?),
        "expire_to" => overrides.expire_to = Some(Name::from(value)),
        "down" => overrides.down = Some(value == "true"),
        _ => return Err(format!("no setting {key} here")),
    }
    Ok(overrides)
}
