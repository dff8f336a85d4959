//! The actions there are, and what is given with each.

use quintet_types::Operation;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::fault::Fault;
use crate::unreadable;
use crate::whole::{Blob, List, Named, Whole};

/// Strings by name.
pub(crate) type Texts = Named<String>;

macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident $(<$($some:ident),*>)? {
        $($(#[$of:meta])* $field:ident: $type:ty),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug, Default, Deserialize)]
            #[serde(default, rename_all = "PascalCase")]
            pub(crate) struct $name $(<$($some),*>)? { $($(#[$of])* pub(crate) $field: $type,)* }
        )*
    };
}

inputs! {
    AddPermission {
        queue_url: Option<String>,
        label: Option<String>,
        actions: List<String>,
        /// Written as no other name is.
        #[serde(rename = "AWSAccountIds")]
        accounts: List<String>,
    }
    RemovePermission { queue_url: Option<String>, label: Option<String> }
    GetQueueUrl { queue_name: Option<String> }
    ListQueues {
        queue_name_prefix: Option<String>,
        max_results: Option<Whole>,
        next_token: Option<String>,
    }
    /// Input that names a queue and nothing else: DeleteQueue, PurgeQueue, ListQueueTags.
    OfQueue { queue_url: Option<String> }
    SetQueueAttributes { queue_url: Option<String>, attributes: Option<Texts> }
    GetQueueAttributes { queue_url: Option<String>, attribute_names: List<String> }
    ListDeadLetterSourceQueues {
        queue_url: Option<String>,
        max_results: Option<Whole>,
        next_token: Option<String>,
    }
    SendMessageBatch { queue_url: Option<String>, entries: List<SendEntry> }
    /// A message alone or in a batch.
    NewMessage<Url, Id> {
        queue_url: Url,
        id: Id,
        message_body: Option<String>,
        delay_seconds: Option<Whole>,
        message_attributes: Named<Attribute>,
        message_system_attributes: Named<Attribute>,
        message_deduplication_id: Option<String>,
        message_group_id: Option<String>,
    }
    /// A value of a message's attribute, as it is given.
    Attribute {
        data_type: Option<String>,
        string_value: Option<String>,
        binary_value: Option<Blob>,
        string_list_values: List<String>,
        binary_list_values: List<Blob>,
    }
    ReceiveMessage {
        queue_url: Option<String>,
        attribute_names: List<String>,
        message_system_attribute_names: List<String>,
        message_attribute_names: List<String>,
        max_number_of_messages: Option<Whole>,
        visibility_timeout: Option<Whole>,
        wait_time_seconds: Option<Whole>,
        receive_request_attempt_id: Option<String>,
    }
    /// Messages received: DeleteMessageBatch, ChangeMessageVisibilityBatch.
    OfHandles { queue_url: Option<String>, entries: List<HandleEntry> }
    HandleEntry {
        id: Option<String>,
        receipt_handle: Option<String>,
        visibility_timeout: Option<Whole>,
    }
    DeleteMessage { queue_url: Option<String>, receipt_handle: Option<String> }
    ChangeMessageVisibility {
        queue_url: Option<String>,
        receipt_handle: Option<String>,
        visibility_timeout: Option<Whole>,
    }
    UntagQueue { queue_url: Option<String>, tag_keys: List<String> }
    TagQueue { queue_url: Option<String>, tags: Texts }
    StartMessageMoveTask {
        source_arn: Option<String>,
        destination_arn: Option<String>,
        max_number_of_messages_per_second: Option<Whole>,
    }
    CancelMessageMoveTask { task_handle: Option<String> }
    ListMessageMoveTasks { source_arn: Option<String>, max_results: Option<Whole> }
    CreateQueue {
        queue_name: Option<String>,
        attributes: Texts,
        /// In small letters, unlike all others.
        #[serde(rename = "tags", alias = "Tags")]
        tags: Texts,
    }
}

/// It has no id.
pub(crate) type SendMessage = NewMessage<Option<String>, IgnoredAny>;
/// It names no queue.
pub(crate) type SendEntry = NewMessage<IgnoredAny, Option<String>>;

/// The actions that name their queue by a URL, and the others: the input of each, the operation
/// that it is, and the method that does it.
macro_rules! table {
    ($with:ident) => {
        $with! {
            {
                AddPermission(AddPermission) = Configure add_permission,
                DeleteQueue(OfQueue) = Drop delete_queue,
                PurgeQueue(OfQueue) = Flush purge_queue,
                SetQueueAttributes(SetQueueAttributes) = Configure set_attributes,
                GetQueueAttributes(GetQueueAttributes) = Work get_attributes,
                SendMessage(SendMessage) = Work send,
                SendMessageBatch(SendMessageBatch) = Work send_batch,
                ReceiveMessage(ReceiveMessage) = Work receive,
                DeleteMessage(DeleteMessage) = Work delete,
                DeleteMessageBatch(OfHandles) = Work delete_batch,
                ChangeMessageVisibility(ChangeMessageVisibility) = Work change,
                ChangeMessageVisibilityBatch(OfHandles) = Work change_batch,
                TagQueue(TagQueue) = Configure tag_queue,
                UntagQueue(UntagQueue) = Configure untag_queue,
                ListQueueTags(OfQueue) = Work list_tags,
                RemovePermission(RemovePermission) = Configure remove_permission,
                ListDeadLetterSourceQueues(ListDeadLetterSourceQueues) = Work list_sources,
            }
            {
                CreateQueue(CreateQueue) = Work create_queue,
                GetQueueUrl(GetQueueUrl) = Work queue_url,
                ListQueues(ListQueues) = Work list_queues,
                StartMessageMoveTask(StartMessageMoveTask) = Move start_move,
                CancelMessageMoveTask(CancelMessageMoveTask) = Move cancel_move,
                ListMessageMoveTasks(ListMessageMoveTasks) = Work list_moves,
            }
        }
    };
}
pub(crate) use table;

macro_rules! actions {
    (
        { $($of:ident($of_input:ty) = $of_operation:ident $of_method:ident,)* }
        { $($name:ident($input:ty) = $operation:ident $method:ident,)* }
    ) => {
        /// A request, read: what is requested, and with what.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(private_interfaces, reason = "what is given is this crate's to read")]
        pub enum Action {
            $($of($of_input),)*
            $($name($input),)*
        }

        impl Action {
            /// The names of all actions.
            pub const NAMES: &'static [&'static str] =
                &[$(stringify!($of),)* $(stringify!($name),)*];

            /// The operation's name in the service's model.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Action::$of(_) => stringify!($of),)*
                    $(Action::$name(_) => stringify!($name),)*
                }
            }

            /// The operation that it is. Programs make their queues at each start, to find them.
            pub(crate) fn operation(&self) -> Operation {
                match self {
                    $(Action::$of(_) => Operation::$of_operation,)*
                    $(Action::$name(_) => Operation::$operation,)*
                }
            }

            /// Reads the action of this name from what was given with it.
            ///
            /// # Errors
            /// There is no such action, or it is given what it cannot take.
            pub(crate) fn of(name: &str, supplied: InputValue<'_>) -> Result<Self, Fault> {
                match name {
                    $(stringify!($of) => supplied.read().map(Action::$of),)*
                    $(stringify!($name) => supplied.read().map(Action::$name),)*
                    _ => Err(Fault::no_action(name)),
                }
            }

            /// Where it names its queue: `None` if it names none by a URL.
            pub(crate) fn queue_url(&mut self) -> Option<&mut Option<String>> {
                match self {
                    $(Action::$of(input) => Some(&mut input.queue_url),)*
                    $(Action::$name(_) => None,)*
                }
            }
        }
    };
}

table!(actions);

/// Input of an action, in the form of its protocol.
#[derive(Clone, Copy)]
pub(crate) enum InputValue<'a> {
    Json(&'a [u8]),
    Form(&'a serde_json::Value),
}

impl InputValue<'_> {
    fn read<T: DeserializeOwned>(self) -> Result<T, Fault> {
        let read = match self {
            InputValue::Json(bytes) => serde_json::from_slice(bytes),
            InputValue::Form(form) => T::deserialize(form),
        };
        read.map_err(|error| self.unreadable::<T>(&error))
    }

    /// The error, with the member that it is about. Members are followed only here, as that costs
    /// time.
    fn unreadable<T: DeserializeOwned>(self, error: &serde_json::Error) -> Fault {
        let again: Result<T, _> = match self {
            InputValue::Json(bytes) => {
                let mut from = serde_json::Deserializer::from_slice(bytes);
                serde_path_to_error::deserialize(&mut from)
            }
            InputValue::Form(form) => serde_path_to_error::deserialize(form),
        };
        let member = again.err().map(|error| error.path().to_string());
        let member = member.filter(|member| member != ".");
        Fault::unreadable(unreadable::text(member.as_deref(), error))
    }
}
