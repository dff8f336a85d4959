//! Actions about queues themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quintet_client::Slices;
use quintet_http::{Guest, locked};
use quintet_types::{
    BulkOp, Command, CommandError, Edit, ListState, Name, Outcome, Overrides, QueueSetup,
    QueueStats, StatsOf, StatsReply, Tags, Verb, When,
};

use crate::ask::{ShardClient, accepted, if_there, unexpected};
use crate::fault::{Fault, Shape};
use crate::input::{
    AddPermission, CreateQueue, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues,
    ListQueues, OfQueue, RemovePermission, SetQueueAttributes, TagQueue, Texts, UntagQueue,
};
use crate::listener::{RequestContext, Sqs};
use crate::names;
use crate::policy;
use crate::queue::{self, CHANGED, Changes, QueueView};
use crate::reply::{Answer, Reply};
use crate::request::{self, required};
use crate::whole::{Whole, within};

/// Queues of a list whose length nobody gave.
const LIST_MAX: usize = 1000;
/// Messages that get another delay in one step.
const STEP: u32 = 100;
/// Times of queues that are remembered at most.
const RECENT_MAX: usize = 100_000;

/// How a queue is set up and what it holds.
pub(crate) struct There {
    pub(crate) setup: Box<QueueSetup>,
    pub(crate) stats: QueueStats,
}

impl Sqs {
    /// A queue as its attributes show it.
    pub(crate) fn seen<'a>(&'a self, name: &'a str, of: &'a There) -> QueueView<'a> {
        let ahead = self.client_api.ahead();
        let created_s = ahead.wall_at(of.stats.created).0 / 1000;
        let changed = of.setup.settings.tags.get(CHANGED);
        let changed = changed.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let gauges = &of.stats.gauges;
        QueueView {
            name,
            settings: &of.setup.settings,
            created_s,
            changed_s: changed.map_or(created_s, |ms| (ms / 1000).max(created_s)),
            ready: gauges.ready,
            delayed: gauges.delayed,
            reserved: gauges.reserved,
            place: &self.place,
        }
    }

    /// Reads a whole queue.
    ///
    /// # Errors
    /// There is none of that name.
    async fn whole(&self, shards: &ShardClient, name: &str) -> Result<There, Fault> {
        let queue = Name::new(name.as_bytes());
        Ok(There {
            setup: shards.setup(&queue).await?,
            stats: shards.numbers(&queue).await?,
        })
    }

    fn url(&self, context: &RequestContext, name: &str) -> String {
        self.place.url(&context.host, context.secure, name)
    }

    /// Makes a queue with these changes to what a queue has of itself. True:
    /// it was not there.
    async fn make(
        &self,
        shards: &ShardClient,
        name: &str,
        changes: Changes,
    ) -> Result<bool, Fault> {
        let queue = Name::new(name.as_bytes());
        let mut overrides = queue::defaults(name, self.limits, &(self.file)(&queue));
        overrides.merge(&changes.settings);
        overrides.tags = (!changes.tags.is_empty()).then_some(changes.tags);
        let create = Command::Create {
            queue,
            overrides: Box::new(overrides),
        };
        match shards.begin(create).outcome().await {
            Outcome::Refused(CommandError::QueueExists) => Ok(false),
            outcome => accepted(outcome).map(|_| true),
        }
    }

    /// Makes a queue with what it has of itself, unless it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) async fn make_if_absent(
        &self,
        shards: &ShardClient,
        name: &str,
    ) -> Result<(), Fault> {
        let queue = Name::new(name.as_bytes());
        if if_there(shards.as_server().numbers(&queue).await)?.is_none() {
            self.make(shards, name, Changes::default()).await?;
        }
        Ok(())
    }

    pub(crate) async fn create_queue(
        &self,
        context: &RequestContext,
        input: CreateQueue,
    ) -> Answer {
        let name = required(&input.queue_name, "QueueName")?;
        let fifo = queue::asks_fifo(&input.attributes)?;
        names::check(name, fifo, self.limits.open)?;
        let mut changes = queue::changes(&input.attributes, fifo, None, self.limits)?;
        let tags = queue::check_tags(name, &input.tags, &Tags::default())?;
        changes.tags = tags.over(&changes.tags);
        self.check_target(context, name, &changes).await?;
        let queue = Name::new(name.as_bytes());
        let wait = self.options.recreate_after;
        if is_recent(&self.recent.deleted, &queue, wait) {
            let why = format!(
                "You must wait {} seconds after deleting a queue before you can create \
                     another with the same name.",
                wait.as_secs()
            );
            return Err(Fault::new(Shape::QueueDeletedRecently, why));
        }
        if self.make(&context.shards, name, changes).await? {
            return Ok(Reply::Queue(self.url(context, name)));
        }
        let whole = self.whole(&context.shards, name).await?;
        match self.seen(name, &whole).differs(&input.attributes)? {
            None => Ok(Reply::Queue(self.url(context, name))),
            Some(attribute) => Err(Fault::new(
                Shape::QueueNameExists,
                format!(
                    "A queue already exists with the same name and a different value for \
                     attribute {attribute}"
                ),
            )),
        }
    }

    /// Looks at the queue that dead letters are to go to.
    async fn check_target(
        &self,
        context: &RequestContext,
        name: &str,
        changes: &Changes,
    ) -> Result<(), Fault> {
        let Some((target, policy)) = &changes.redrive else {
            return Ok(());
        };
        let queue = Name::new(target.as_bytes());
        self.must_have(context, Verb::Put, &queue)?;
        let wrong = |reason| queue::redrive_wrong(policy, reason);
        let setup = if_there(context.shards.as_server().setup(&queue).await)?;
        let setup = setup.ok_or_else(|| wrong("Dead letter target does not exist."))?;
        if names::is_fifo(target) != names::is_fifo(name) {
            let reason = "Dead-letter queue must be same type of queue as the source.";
            return Err(wrong(reason));
        }
        match queue::lets(&setup.settings.tags, name) {
            true => Ok(()),
            false => Err(wrong(
                "Queue does not have permission to use the given dead letter target.",
            )),
        }
    }

    pub(crate) async fn queue_url(&self, context: &RequestContext, input: GetQueueUrl) -> Answer {
        let name = required(&input.queue_name, "QueueName")?;
        let queue = Name::new(name.as_bytes());
        if if_there(context.shards.numbers(&queue).await)?.is_none() {
            if !self.options.auto_create {
                return Err(Fault::no_queue());
            }
            names::check(name, names::is_fifo(name), self.limits.open)?;
            self.make_if_absent(&context.shards, name).await?;
        }
        Ok(Reply::Queue(self.url(context, name)))
    }

    pub(crate) async fn list_queues(&self, context: &RequestContext, input: ListQueues) -> Answer {
        let open = self.limits.open;
        let wanted = Listed {
            prefix: input.queue_name_prefix.unwrap_or_default(),
            ..Listed::default()
        };
        let ours = move |name: &str| names::is_ours(name, open);
        let (max, token) = (&input.max_results, input.next_token.as_deref());
        self.page(context, wanted, max, token, ours, false).await
    }

    pub(crate) async fn list_sources(
        &self,
        context: &RequestContext,
        input: ListDeadLetterSourceQueues,
    ) -> Answer {
        let (_, queue) = request::named(&input.queue_url)?;
        context.shards.numbers(&queue).await?;
        let wanted = Listed {
            dead_letter: Some(queue),
            ..Listed::default()
        };
        let (max, token) = (&input.max_results, input.next_token.as_deref());
        self.page(context, wanted, max, token, |_| true, true).await
    }

    /// A page of a list of names.
    async fn page(
        &self,
        context: &RequestContext,
        mut wanted: Listed,
        max: &Option<Whole>,
        token: Option<&str>,
        fits: impl Fn(&str) -> bool,
        sources: bool,
    ) -> Answer {
        let reason = "MaxResults must be an integer between 1 and 1000.";
        let max = within(max, "MaxResults", (1, 1000), reason)?;
        if let Some(token) = token {
            let after = URL_SAFE_NO_PAD.decode(token).ok();
            let after = after.and_then(|bytes| String::from_utf8(bytes).ok());
            let after = after.filter(|name| !name.is_empty());
            wanted.after =
                Some(after.ok_or_else(|| Fault::parameter("Invalid or expired next token."))?);
        }
        let most = max.and_then(|max| usize::try_from(max).ok());
        let most = most.unwrap_or(LIST_MAX);
        wanted.max = most + 1;
        let mut names = listed_if(&context.shards, wanted, fits).await?;
        let more = names.len() > most;
        names.truncate(most);
        let next = names.last().filter(|_| more && max.is_some());
        let next = next.map(|name| URL_SAFE_NO_PAD.encode(name));
        let urls = names.iter().map(|name| self.url(context, name)).collect();
        Ok(Reply::Queues {
            urls,
            next,
            sources,
        })
    }

    pub(crate) async fn delete_queue(&self, context: &RequestContext, input: OfQueue) -> Answer {
        let (_, queue) = request::named(&input.queue_url)?;
        self.must_have(context, Verb::Drop, &queue)?;
        context.shards.as_server().numbers(&queue).await?;
        let dropped = context.shards.ask(Command::Drop(queue.clone())).await?;
        remember(&self.recent.deleted, &queue, self.options.recreate_after);
        Ok(removed(&dropped))
    }

    pub(crate) async fn purge_queue(&self, context: &RequestContext, input: OfQueue) -> Answer {
        let (name, queue) = request::named(&input.queue_url)?;
        self.must_have(context, Verb::Flush, &queue)?;
        context.shards.as_server().numbers(&queue).await?;
        let interval = self.options.purge_interval;
        if is_recent(&self.recent.purged, &queue, interval) {
            let why = format!(
                "Only one PurgeQueue operation on {name} is allowed every {} seconds.",
                interval.as_secs()
            );
            return Err(Fault::new(Shape::PurgeQueueInProgress, why));
        }
        // What is in flight goes in the same step, so that nothing of it comes back.
        let whole = Command::Flush {
            queue: queue.clone(),
            reserved: true,
        };
        let purged = context.shards.ask(whole).await?;
        remember(&self.recent.purged, &queue, interval);
        Ok(removed(&purged))
    }

    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        context: &RequestContext,
        input: SetQueueAttributes,
    ) -> Answer {
        let (name, queue) = request::named(&input.queue_url)?;
        let attributes: Texts = input
            .attributes
            .ok_or_else(|| Fault::missing("Attributes"))?;
        let setup = context.shards.setup(&queue).await?;
        let fifo = names::is_fifo(name);
        let there = &setup.settings.tags;
        let mut changes = queue::changes(&attributes, fifo, Some(there), self.limits)?;
        self.check_target(context, name, &changes).await?;
        let now = self.client_api.wall().0.to_string();
        changes.tags.set(CHANGED, Some(now.as_bytes()));
        let delay_ms = changes.settings.default_delay_ms;
        let before_ms = setup.settings.default_delay_ms;
        let mut settings = changes.settings;
        settings.tags = Some(changes.tags);
        let Some(delay_ms) = delay_ms.filter(|&ms| fifo && ms != before_ms) else {
            context.shards.configure(queue, settings).await?;
            return Ok(Reply::Done);
        };
        // Done to its end also if the client goes: a repeat would find the delay there, and leave
        // the rest of the messages as they are.
        let own = Arc::clone(self);
        let mut context = RequestContext {
            connection_slot: None,
            client: None,
            ..context.clone()
        };
        let done = tokio::spawn(async move {
            let guest = Guest::new(&own.client_api);
            context.shards.caller.client_id = guest.client_id();
            context.shards.configure(queue.clone(), settings).await?;
            let done = own.delay_anew(&context, &queue, before_ms, delay_ms).await;
            if done.is_err() {
                // The next try finds that the delay is another.
                let overrides = Overrides {
                    default_delay_ms: Some(before_ms),
                    ..Overrides::default()
                };
                context.shards.configure(queue, overrides).await?;
            }
            done
        });
        let cut_short = |_| Err(Fault::internal("a change was not done to its end"));
        done.await.unwrap_or_else(cut_short)?;
        Ok(Reply::Done)
    }

    /// The delay of a FIFO queue is that of the messages in it as well, until they are received.
    async fn delay_anew(
        &self,
        context: &RequestContext,
        queue: &Name,
        before_ms: u64,
        delay_ms: u64,
    ) -> Result<(), Fault> {
        let shards = context.shards.as_server();
        // One that is ready stays so where the delay gets shorter.
        let ready = (delay_ms > before_ms).then_some(ListState::Ready);
        for state in [ListState::Delayed].into_iter().chain(ready) {
            let mut slices = Slices::of(BulkOp::show(queue.clone(), state, STEP));
            while let Some(bulk_op) = slices.slice() {
                if *context.stops.borrow() {
                    return Err(Fault::new(
                        Shape::RequestThrottled,
                        "the server is stopping",
                    ));
                }
                let shown = shards.bulk(bulk_op).await?;
                let now = self.client_api.now();
                let edits = shown.messages.iter().filter_map(|message| {
                    let of_queue = match message.extra.as_ref().and_then(|extra| extra.due) {
                        // The clock's grain was added.
                        Some(due) => due.0.abs_diff((message.created + before_ms).0) < 1000,
                        None => true,
                    };
                    let due = message.created + delay_ms;
                    let waits = state == ListState::Delayed || due > now;
                    (message.reserves == 0 && of_queue && waits).then(|| {
                        let edit = Edit {
                            due: Some(When::At(due)),
                            ..Edit::default()
                        };
                        shards.begin(Command::Edit(message.id, Box::new(edit)))
                    })
                });
                for mut edit in edits.collect::<Vec<_>>() {
                    match edit.outcome().await {
                        // It was received or purged meanwhile.
                        Outcome::Refused(CommandError::NotFound) => {}
                        outcome => accepted(outcome).map(drop)?,
                    }
                }
                slices.done(&shown);
            }
        }
        Ok(())
    }

    pub(crate) async fn get_attributes(
        &self,
        context: &RequestContext,
        input: GetQueueAttributes,
    ) -> Answer {
        let name = request::queue(&input.queue_url)?;
        let whole = self.whole(&context.shards, name).await?;
        let seen = self.seen(name, &whole);
        Ok(Reply::Attributes(seen.values(&input.attribute_names.kept)?))
    }

    pub(crate) async fn tag_queue(&self, context: &RequestContext, input: TagQueue) -> Answer {
        let (name, queue) = request::named(&input.queue_url)?;
        let setup = context.shards.setup(&queue).await?;
        if input.tags.count == 0 {
            return Err(Fault::missing("Tags"));
        }
        let tags = queue::check_tags(name, &input.tags, &setup.settings.tags)?;
        context.shards.set_tags(queue, tags).await?;
        Ok(Reply::Done)
    }

    pub(crate) async fn untag_queue(&self, context: &RequestContext, input: UntagQueue) -> Answer {
        let (_, queue) = request::named(&input.queue_url)?;
        let setup = context.shards.setup(&queue).await?;
        if input.tag_keys.count == 0 {
            let why = "Tag keys must be between 1 and 128 characters in length.";
            return Err(Fault::parameter(why));
        }
        let mut tags = Tags::default();
        for key in &input.tag_keys.kept {
            queue::not_reserved(key)?;
            if setup.settings.tags.get(key.as_bytes()).is_some() {
                tags.set(key.as_bytes(), None);
            }
        }
        if !tags.is_empty() {
            context.shards.set_tags(queue, tags).await?;
        }
        Ok(Reply::Done)
    }

    pub(crate) async fn list_tags(&self, context: &RequestContext, input: OfQueue) -> Answer {
        let (_, queue) = request::named(&input.queue_url)?;
        let setup = context.shards.setup(&queue).await?;
        Ok(Reply::Tags(queue::tags_of_clients(&setup.settings.tags)))
    }

    pub(crate) async fn add_permission(
        &self,
        context: &RequestContext,
        input: AddPermission,
    ) -> Answer {
        let (accounts, actions) = (&input.accounts.kept, &input.actions.kept);
        let add = |there: Option<&str>, arn: &str, label: &str| {
            policy::add(there, arn, label, accounts, actions).map(Some)
        };
        self.change_policy(context, &input.queue_url, &input.label, add)
            .await
    }

    pub(crate) async fn remove_permission(
        &self,
        context: &RequestContext,
        input: RemovePermission,
    ) -> Answer {
        let (queue, label) = (&input.queue_url, &input.label);
        self.change_policy(context, queue, label, policy::remove)
            .await
    }

    async fn change_policy(
        &self,
        context: &RequestContext,
        queue: &Option<String>,
        label: &Option<String>,
        change: impl FnOnce(Option<&str>, &str, &str) -> Result<Option<String>, Fault>,
    ) -> Answer {
        let (name, queue) = request::named(queue)?;
        let label = required(label, "Label")?;
        let setup = context.shards.setup(&queue).await?;
        let there = queue::text(&setup.settings.tags, "Policy");
        let policy = change(there, &self.place.arn(name), label)?;
        let mut tags = Tags::default();
        tags.set(&queue::tag("Policy"), policy.as_deref().map(str::as_bytes));
        context.shards.set_tags(queue, tags).await?;
        Ok(Reply::Done)
    }
}

/// Which queues are listed.
#[derive(Clone, Default)]
pub(crate) struct Listed {
    pub(crate) prefix: String,
    /// Behind this name.
    pub(crate) after: Option<String>,
    /// Only queues whose dead letters go here.
    pub(crate) dead_letter: Option<Name>,
    /// As many at most; 0: all.
    pub(crate) max: usize,
}

/// Names of queues, sorted.
///
/// # Errors
/// As the shards say.
pub(crate) async fn listed(shards: &ShardClient, wanted: Listed) -> Result<Vec<String>, Fault> {
    listed_if(shards, wanted, |_| true).await
}

/// Names that are requested of a shard at once.
const NAMES_AT_ONCE: usize = 1000;

async fn listed_if(
    shards: &ShardClient,
    wanted: Listed,
    fits: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Fault> {
    let most = if wanted.max == 0 {
        usize::MAX
    } else {
        wanted.max
    };
    let mut names = Vec::new();
    let mut shard = 0;
    loop {
        let mut after = wanted.after.as_ref().map(|name| Name::new(name.as_bytes()));
        let mut of_shard = 0;
        let next_shard = loop {
            let of = StatsOf::Names {
                shard,
                prefix: wanted.prefix.as_bytes().into(),
                after,
                dead_letter: wanted.dead_letter.clone(),
                max: u32::try_from(most.min(NAMES_AT_ONCE)).unwrap_or(u32::MAX),
            };
            let StatsReply::Names(page) = shards.stats(of).await? else {
                return Err(unexpected());
            };
            for name in page.names {
                // Names of other protocols may be no text.
                if let Ok(name) = String::from_utf8(name.as_bytes().to_vec())
                    && fits(&name)
                {
                    names.push(name);
                    of_shard += 1;
                }
            }
            after = page.next;
            if after.is_none() || of_shard >= most {
                break page.next_shard;
            }
        };
        match next_shard {
            Some(next) => shard = next,
            None => break,
        }
    }
    names.sort_unstable();
    names.truncate(most);
    Ok(names)
}

fn removed(outcome: &Outcome) -> Reply {
    if let Outcome::Count(count) = outcome {
        Reply::Removed(*count)
    } else {
        Reply::Done
    }
}

fn is_recent(times: &Mutex<HashMap<Name, Instant>>, queue: &Name, within: Duration) -> bool {
    let times = locked(times);
    let last = times.get(queue);
    last.is_some_and(|last| last.elapsed() < within)
}

fn remember(times: &Mutex<HashMap<Name, Instant>>, queue: &Name, within: Duration) {
    if within.is_zero() {
        return;
    }
    let mut times = locked(times);
    if times.len() >= RECENT_MAX {
        times.retain(|_, last| last.elapsed() < within);
    }
    if times.len() < RECENT_MAX {
        times.insert(queue.clone(), Instant::now());
    }
}
