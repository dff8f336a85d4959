//! Maps of requests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Reads a map; for `deserialize_with`.
///
/// # Errors
/// A key is there twice, which serde's own maps accept; or it is no map of such values.
pub fn unique<'de, D, V>(from: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Read<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for Read<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::<String, V>::new();
            while let Some(key) = map.next_key()? {
                match all.entry(key) {
                    Entry::Vacant(new) => {
                        new.insert(map.next_value()?);
                    }
                    Entry::Occupied(old) => {
                        let text = format!("duplicate field `{}`", old.key());
                        return Err(A::Error::custom(text));
                    }
                }
            }
            Ok(all)
        }
    }

    from.deserialize_map(Read(PhantomData))
}
