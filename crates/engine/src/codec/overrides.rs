//! A queue's own settings: a bit per setting that is given, then their values.

use super::FactError;
use super::read::Reader;
use super::write::Writer;
use quintet_types::{
    DeadLetter, Groups, Name, OnRepeat, Overrides, Rate, RetryOn, Scope, Tags, WhenFull,
    each_override,
};

/// A value that can stand in the list.
trait Field: Sized {
    fn write(&self, w: &mut Writer<'_>);
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError>;
}

impl Field for u32 {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(u64::from(*self));
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        r.small("setting")
    }
}

impl Field for u64 {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(*self);
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        r.number()
    }
}

impl Field for bool {
    fn write(&self, w: &mut Writer<'_>) {
        w.flag(*self);
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        r.flag()
    }
}

impl Field for Name {
    fn write(&self, w: &mut Writer<'_>) {
        w.bytes(self.as_bytes());
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        Ok(Name::new(r.bytes()?))
    }
}

impl Field for DeadLetter {
    fn write(&self, w: &mut Writer<'_>) {
        // The empty name is no queue's.
        match self {
            DeadLetter::Bury => w.bytes(b""),
            DeadLetter::To(name) => w.bytes(name.as_bytes()),
        }
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        let name = Name::new(r.bytes()?);
        Ok(if name.is_empty() {
            DeadLetter::Bury
        } else {
            DeadLetter::To(name)
        })
    }
}

impl Field for WhenFull {
    fn write(&self, w: &mut Writer<'_>) {
        w.flag(*self == WhenFull::DropOldest);
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        Ok(if r.flag()? {
            WhenFull::DropOldest
        } else {
            WhenFull::Refuse
        })
    }
}

impl Field for Rate {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(u64::from(self.count));
        w.number(self.per_ms);
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        Ok(Rate {
            count: r.small("setting")?,
            per_ms: r.number()?,
        })
    }
}

impl Field for RetryOn {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(u64::from(self.bits()));
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        RetryOn::of_bits(r.small("setting")?).ok_or(FactError::BadField("setting"))
    }
}

macro_rules! coded_fields {
    ($($kind:ty),*) => {
        $(impl Field for $kind {
            fn write(&self, w: &mut Writer<'_>) {
                w.coded(*self);
            }
            fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
                r.coded()
            }
        })*
    };
}

coded_fields!(Scope, OnRepeat, Groups);

impl Field for Tags {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(self.iter().count() as u64);
        for (name, value) in self.iter() {
            w.bytes(name);
            w.bytes(value);
        }
    }
    fn read(r: &mut Reader<'_>) -> Result<Self, FactError> {
        let mut tags = Tags::default();
        for _ in 0..r.number()? {
            let name = r.bytes()?;
            tags.set(name, Some(r.bytes()?));
        }
        Ok(tags)
    }
}

macro_rules! fields {
    ($($field:ident),* $(,)?) => {
        pub(super) fn write(w: &mut Writer<'_>, overrides: &Overrides) {
            w.number(overrides.set_bits());
            $(if let Some(value) = &overrides.$field { value.write(w); })*
        }

        pub(super) fn read(r: &mut Reader<'_>) -> Result<Overrides, FactError> {
            let mut bits = r.number()?;
            let mut overrides = Overrides::default();
            $(
                if bits & 1 != 0 {
                    overrides.$field = Some(Field::read(r)?);
                }
                bits >>= 1;
            )*
            if bits == 0 { Ok(overrides) } else { Err(FactError::BadField("settings")) }
        }
    };
}

each_override!(fields);
