//! Errors of requests, in the words of each protocol.

use std::borrow::Cow;

use quintet_types::{Class, CommandError};

macro_rules! shapes {
    ($($(#[$doc:meta])* $shape:ident $name:literal $code:literal $status:literal;)*) => {
        /// The kinds of errors there are.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Shape { $($(#[$doc])* $shape,)* }

        impl Shape {
            /// Every shape, in the order of their declaration.
            pub const ALL: &'static [Shape] = &[$(Shape::$shape,)*];

            /// The name of the shape in the service's model, which the JSON protocol says.
            pub fn name(self) -> &'static str {
                match self { $(Shape::$shape => $name,)* }
            }

            /// The code that the Query protocol says, and by which SDKs know an error.
            pub fn code(self) -> &'static str {
                match self { $(Shape::$shape => $code,)* }
            }

            /// The status of the JSON protocol's reply.
            pub fn status(self) -> u16 {
                match self { $(Shape::$shape => $status,)* }
            }
        }
    };
}

shapes! {
    QueueDoesNotExist "QueueDoesNotExist" "AWS.SimpleQueueService.NonExistentQueue" 400;
    QueueNameExists "QueueNameExists" "QueueAlreadyExists" 400;
    QueueDeletedRecently "QueueDeletedRecently" "AWS.SimpleQueueService.QueueDeletedRecently" 400;
    PurgeQueueInProgress "PurgeQueueInProgress" "AWS.SimpleQueueService.PurgeQueueInProgress" 403;
    InvalidAttributeName "InvalidAttributeName" "InvalidAttributeName" 400;
    InvalidAttributeValue "InvalidAttributeValue" "InvalidAttributeValue" 400;
    InvalidParameterValue "InvalidParameterValueException" "InvalidParameterValue" 400;
    MissingParameter "MissingRequiredParameterException" "MissingParameter" 400;
    InvalidMessageContents "InvalidMessageContents" "InvalidMessageContents" 400;
    ReceiptHandleIsInvalid "ReceiptHandleIsInvalid" "ReceiptHandleIsInvalid" 400;
    EmptyBatchRequest "EmptyBatchRequest" "AWS.SimpleQueueService.EmptyBatchRequest" 400;
    TooManyEntriesInBatchRequest "TooManyEntriesInBatchRequest"
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest" 400;
    InvalidBatchEntryId "InvalidBatchEntryId" "AWS.SimpleQueueService.InvalidBatchEntryId" 400;
    BatchEntryIdsNotDistinct "BatchEntryIdsNotDistinct"
        "AWS.SimpleQueueService.BatchEntryIdsNotDistinct" 400;
    BatchRequestTooLong "BatchRequestTooLong" "AWS.SimpleQueueService.BatchRequestTooLong" 400;
    OverLimit "OverLimit" "OverLimit" 403;
    UnsupportedOperation "UnsupportedOperation" "AWS.SimpleQueueService.UnsupportedOperation" 400;
    ResourceNotFound "ResourceNotFoundException" "ResourceNotFoundException" 404;
    UnknownOperation "UnknownOperationException" "InvalidAction" 400;
    Serialization "SerializationException" "SerializationException" 400;
    AccessDenied "AccessDeniedException" "AccessDeniedException" 403;
    InvalidClientTokenId "InvalidClientTokenId" "InvalidClientTokenId" 403;
    SignatureDoesNotMatch "SignatureDoesNotMatch" "SignatureDoesNotMatch" 403;
    MissingAuthenticationToken "MissingAuthenticationToken" "MissingAuthenticationToken" 403;
    IncompleteSignature "IncompleteSignature" "IncompleteSignature" 403;
    /// Will pass by waiting: SDKs ask again with back-off.
    RequestThrottled "RequestThrottled" "RequestThrottled" 503;
    /// A fault of the server's.
    InternalFailure "InternalFailure" "InternalFailure" 500;
}

impl Shape {
    /// False: the client can do nothing about it.
    pub fn is_sender(self) -> bool {
        self != Shape::InternalFailure
    }

    /// False: the Query protocol has no element `Detail` in it, as AWS has none.
    pub(crate) fn has_detail(self) -> bool {
        !matches!(
            self,
            Shape::InvalidBatchEntryId | Shape::TooManyEntriesInBatchRequest
        )
    }

    /// Prefix of the name in JSON.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Shape::Serialization => "com.amazon.coral.service",
            _ => "com.amazonaws.sqs",
        }
    }
}

/// An error: its kind and its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub shape: Shape,
    /// For people.
    pub text: Cow<'static, str>,
    /// A status of the reply that is not the shape's.
    pub status: Option<u16>,
}

/// Bytes of an error's words at most.
const TEXT_MAX: usize = 4 << 10;

/// The words for a queue that does not exist, to which the Query protocol adds some.
const NO_QUEUE: &str = "The specified queue does not exist.";

impl Fault {
    /// An error of this kind. Its words may repeat what the client sent: they end at 4 KiB.
    pub fn new(shape: Shape, text: impl Into<Cow<'static, str>>) -> Self {
        let mut text = text.into();
        let mut end = TEXT_MAX.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end < text.len() {
            text = Cow::Owned(text[..end].to_owned());
        }
        Self {
            shape,
            text,
            status: None,
        }
    }

    /// There is no such queue.
    pub fn no_queue() -> Self {
        Self::new(Shape::QueueDoesNotExist, NO_QUEUE)
    }

    /// A parameter has a value it cannot have.
    pub fn parameter(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Shape::InvalidParameterValue, text)
    }

    /// The same, in the service's usual words.
    pub fn value(value: impl std::fmt::Display, parameter: &str, reason: &str) -> Self {
        Self::parameter(format!(
            "Value {value} for parameter {parameter} is invalid. Reason: {reason}"
        ))
    }

    /// The error for a request without a required parameter.
    pub fn missing(parameter: &str) -> Self {
        Self::new(
            Shape::MissingParameter,
            format!("The request must contain the parameter {parameter}."),
        )
    }

    /// A queue has no attribute of this name.
    pub fn unknown_attribute(name: &str) -> Self {
        Self::new(
            Shape::InvalidAttributeName,
            format!("Unknown Attribute {name}."),
        )
    }

    /// An attribute of a queue cannot have this value.
    pub fn attribute(name: &str, reason: &str) -> Self {
        let space = if reason.is_empty() { "" } else { " Reason: " };
        Self::new(
            Shape::InvalidAttributeValue,
            format!("Invalid value for the parameter {name}.{space}{reason}"),
        )
    }

    /// The request cannot be read.
    pub fn unreadable(why: impl std::fmt::Display) -> Self {
        Self::new(Shape::Serialization, why.to_string())
    }

    /// There is no such action.
    pub fn no_action(name: &str) -> Self {
        Self::new(
            Shape::UnknownOperation,
            format!("The action {name} is not valid for this endpoint."),
        )
    }

    /// A handle is none of ours, or is of another queue.
    pub fn handle(handle: &str) -> Self {
        Self::new(
            Shape::ReceiptHandleIsInvalid,
            format!("The input receipt handle \"{handle}\" is not a valid receipt handle."),
        )
    }

    /// The request is signed with a key that is not known, or counts no more.
    pub(crate) fn unknown_key() -> Self {
        let text = "The security token included in the request is invalid.";
        Self::new(Shape::InvalidClientTokenId, text)
    }

    /// The request is not signed.
    pub(crate) fn not_signed() -> Self {
        let text = "Request is missing Authentication Token";
        Self::new(Shape::MissingAuthenticationToken, text)
    }

    /// The server did not do as it has to.
    pub fn internal(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Shape::InternalFailure, text)
    }

    /// The same with another status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The words of the Query protocol.
    pub(crate) fn query_text(&self) -> Cow<'_, str> {
        match self.shape {
            Shape::QueueDoesNotExist if self.text == NO_QUEUE => {
                Cow::Borrowed("The specified queue does not exist for this wsdl version.")
            }
            _ => Cow::Borrowed(&self.text),
        }
    }

    /// The status of the JSON protocol's reply.
    pub(crate) fn json_status(&self) -> u16 {
        self.status.unwrap_or(self.shape.status())
    }

    /// The status of the Query protocol's reply.
    pub(crate) fn query_status(&self) -> u16 {
        match (self.status, self.shape) {
            (Some(status), _) => status,
            (None, Shape::ReceiptHandleIsInvalid) => 404,
            (None, shape) => shape.status(),
        }
    }
}

impl From<CommandError> for Fault {
    fn from(command_error: CommandError) -> Self {
        let text = command_error.text();
        match command_error {
            CommandError::QueueNotFound => Self::no_queue(),
            CommandError::HeldLimit => Self::new(Shape::OverLimit, text),
            // Worth a second try.
            CommandError::NoSpace
            | CommandError::NoMemory
            | CommandError::DedupeFull
            | CommandError::Conflict => Self::new(Shape::RequestThrottled, text),
            // Said of an attribute or a tag.
            CommandError::Locked | CommandError::TagsFull => Self::parameter(text),
            _ => match command_error.class() {
                Class::Full => Self::new(Shape::OverLimit, text),
                Class::Unavailable => Self::new(Shape::RequestThrottled, text),
                Class::Unknown => Self::internal(text),
                Class::NotPermitted => Self::new(Shape::AccessDenied, text),
                Class::Absent | Class::Busy | Class::Malformed => Self::parameter(text),
            },
        }
    }
}
