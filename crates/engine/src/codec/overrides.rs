//! A queue's own settings: a bit per setting that is given, then their values.

use super::FactError;
use super::field::{Field, Part, fields};
use super::read::Reader;
use super::write::Writer;
use quintet_types::{DeadLetter, Name, Overrides, RetryOn, Tags, WhenFull, each_override};

impl Field for DeadLetter {
    fn write(&self, w: &mut Writer<'_>) {
        // The empty name is no queue's.
        match self {
            DeadLetter::Bury => w.bytes(b""),
            DeadLetter::To(name) => w.bytes(name.as_bytes()),
        }
    }
    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let name = Name::new(r.bytes()?);
        Ok(if name.is_empty() {
            DeadLetter::Bury
        } else {
            DeadLetter::To(name)
        })
    }
}

fields! {
    WhenFull:
        |w, when_full| w.flag(*when_full == WhenFull::DropOldest),
        |r, _name| Ok(match r.flag()? {
            true => WhenFull::DropOldest,
            false => WhenFull::Refuse,
        });
    RetryOn:
        |w, retry_on| w.number(u64::from(retry_on.bits())),
        |r, name| RetryOn::of_bits(r.small(name)?).ok_or(FactError::BadField(name));
}

impl Field for Tags {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(self.iter().count() as u64);
        for (name, value) in self.iter() {
            w.bytes(name);
            w.bytes(value);
        }
    }
    fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
        let mut tags = Tags::default();
        for _ in 0..r.number()? {
            let name = r.bytes()?;
            tags.set(name, Some(r.bytes()?));
        }
        Ok(tags)
    }
}

macro_rules! settings {
    ($($field:ident),* $(,)?) => {
        impl Field for Overrides {
            fn write(&self, w: &mut Writer<'_>) {
                w.number(self.set_bits());
                $(Part::write(&self.$field, w);)*
            }

            fn read(r: &mut Reader<'_>, _name: &'static str) -> Result<Self, FactError> {
                let mut bits = r.number()?;
                let mut overrides = Overrides::default();
                $(
                    overrides.$field = Part::read_if(bits & 1 != 0, r, "setting")?;
                    bits >>= 1;
                )*
                if bits == 0 { Ok(overrides) } else { Err(FactError::BadField("settings")) }
            }
        }
    };
}

each_override!(settings);
