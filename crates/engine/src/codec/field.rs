//! Fields of records: the bytes of a type, in both directions.

use std::sync::Arc;

use super::FactError;
use super::read::Reader;
use super::write::Writer;
use quintet_types::{
    AfterOn, Attachment, Attr, BatchId, CallbackState, ClientId, Groups, IfFailed, MessageId, Ms,
    Name, OnRepeat, ParentState, QueueId, Removal, Role, RunId, Scope, State, TrackState, Transfer,
};

/// A value that can stand in a record.
pub(super) trait Field: Sized {
    fn write(&self, w: &mut Writer<'_>);

    /// `name` is the field, for errors.
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError>;
}

/// A field that is left out of a record where its value is the default.
pub(super) trait Part: Default {
    fn is_there(&self) -> bool;

    /// Writes it if it is there.
    fn write(&self, w: &mut Writer<'_>);

    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError>;

    /// Reads it if it is there.
    fn read_if(is_there: bool, r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError> {
        match is_there {
            true => Self::read(r, name),
            false => Ok(Self::default()),
        }
    }
}

macro_rules! fields {
    ($($type:ty: |$w:ident, $value:ident| $write:expr, |$r:ident, $name:ident| $read:expr;)*) => {
        $(impl Field for $type {
            fn write(&self, $w: &mut Writer<'_>) {
                let $value = self;
                $write;
            }
            fn read($r: &mut Reader<'_>, $name: &'static str) -> Result<Self, FactError> {
                $read
            }
        })*
    };
}

/// Structs whose records are their fields, in this order.
macro_rules! records {
    ($($type:ident { $($field:ident),* })*) => {
        $(impl Field for $type {
            fn write(&self, w: &mut Writer<'_>) {
                $(Field::write(&self.$field, w);)*
            }
            fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
                Ok(Self { $($field: Field::read(r, stringify!($field))?),* })
            }
        })*
    };
}

/// A struct whose record begins with a bit for each part that is there. Then come the fields that
/// always are, and then the parts in this order.
macro_rules! parted_record {
    (@name $part:ident) => {
        stringify!($part)
    };
    (@name $part:ident $name:literal) => {
        $name
    };
    (
        $type:ident, $error:literal, $bits:ident: [$($field:ident),*]
        $($bit:literal $part:ident $($name:literal)?,)*
    ) => {
        impl Field for $type {
            fn write(&self, w: &mut Writer<'_>) {
                let bits: $bits = 0 $(| $bits::from(Part::is_there(&self.$part)) << $bit)*;
                Field::write(&bits, w);
                $(Field::write(&self.$field, w);)*
                $(Part::write(&self.$part, w);)*
            }
            fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
                let bits: $bits = Field::read(r, $error)?;
                let known: $bits = 0 $(| 1 << $bit)*;
                if bits & !known != 0 {
                    return Err(FactError::BadField($error));
                }
                Ok(Self {
                    $($field: Field::read(r, stringify!($field))?,)*
                    $($part: Part::read_if(
                        bits & (1 << $bit) != 0,
                        r,
                        parted_record!(@name $part $($name)?),
                    )?,)*
                })
            }
        }
    };
}

pub(super) use {fields, parted_record, records};

fields! {
    bool: |w, flag| w.flag(*flag), |r, _name| r.flag();
    u8: |w, byte| w.byte(*byte), |r, _name| r.byte();
    u32: |w, number| w.number(u64::from(*number)), |r, name| r.small(name);
    u64: |w, number| w.number(*number), |r, _name| r.number();
    i64: |w, number| w.signed(*number), |r, _name| r.signed();
    Ms: |w, time| w.number(time.0), |r, _name| Ok(Ms(r.number()?));
    Option<Ms>: |w, time| w.time(*time), |r, _name| r.time();
    MessageId: |w, id| w.number(id.0), |r, _name| Ok(MessageId(r.number()?));
    BatchId: |w, id| w.number(id.0), |r, _name| Ok(BatchId(r.number()?));
    ClientId: |w, id| w.number(id.0), |r, _name| Ok(ClientId(r.number()?));
    RunId: |w, run| w.number(u64::from(run.0)), |r, _name| r.run();
    QueueId: |w, queue| w.number(u64::from(queue.0)), |r, _name| r.queue();
    Name: |w, name| w.bytes(name.as_bytes()), |r, _name| Ok(Name::new(r.bytes()?));
    Box<[u8]>: |w, bytes| w.bytes(bytes), |r, _name| Ok(r.bytes()?.into());
    Arc<[u8]>: |w, bytes| w.bytes(bytes), |r, _name| Ok(r.bytes()?.into());
    [u8; 16]: |w, bytes| w.exactly(bytes), |r, _name| r.array();
    Vec<Attr>: |w, attrs| w.attrs(attrs), |r, _name| r.attrs();
    Vec<Attachment>: |w, attachments| w.attachments(attachments), |r, _name| r.attachments();
}

/// Enums that are a byte ([`quintet_types::Coded`]).
macro_rules! coded_fields {
    ($($type:ty),*) => {
        fields! { $($type: |w, value| w.coded(*value), |r, _name| r.coded();)* }
    };
}

coded_fields! {
    AfterOn, CallbackState, Groups, IfFailed, OnRepeat, ParentState, Removal, Role, Scope, State,
    TrackState, Transfer
}

impl<T: Field> Field for Box<T> {
    fn write(&self, w: &mut Writer<'_>) {
        T::write(self, w);
    }
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError> {
        Ok(Box::new(T::read(r, name)?))
    }
}

impl<T: Field> Part for Option<T> {
    fn is_there(&self) -> bool {
        self.is_some()
    }
    fn write(&self, w: &mut Writer<'_>) {
        if let Some(value) = self {
            T::write(value, w);
        }
    }
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError> {
        Ok(Some(T::read(r, name)?))
    }
}

macro_rules! parts {
    ($($type:ty: |$value:ident| $is_there:expr;)*) => {
        $(impl Part for $type {
            fn is_there(&self) -> bool {
                let $value = self;
                $is_there
            }
            fn write(&self, w: &mut Writer<'_>) {
                if self.is_there() {
                    Field::write(self, w);
                }
            }
            fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, FactError> {
                Field::read(r, name)
            }
        })*
    };
}

parts! {
    u32: |number| *number != 0;
    u64: |number| *number != 0;
    Ms: |time| time.0 != 0;
    MessageId: |id| id.0 != 0;
    State: |state| *state != State::Ready;
    Box<[u8]>: |bytes| !bytes.is_empty();
    Vec<Attr>: |attrs| !attrs.is_empty();
    Vec<Attachment>: |attachments| !attachments.is_empty();
}

/// Its bit says all.
impl Part for bool {
    fn is_there(&self) -> bool {
        *self
    }
    fn write(&self, _: &mut Writer<'_>) {}
    fn read(_: &mut Reader<'_>, _: &'static str) -> Result<Self, FactError> {
        Ok(true)
    }
}
