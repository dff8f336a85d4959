//! JSON for hooks, and how values stand in durable tables.

use mlua::{Lua, Result as LuaResult, Table, Value};
use serde_json::{Map, Number, Value as Json};

use crate::fields::opaque;
use crate::meter::Meter;

/// Nested tables at most; also stops a table that contains itself.
const DEPTH_MAX: usize = 64;
/// The longest text that is decoded, bytes: what it becomes takes up to 30
/// times as much memory, which no limit of Lua's counts.
const DECODED_MAX: usize = 1 << 20;

/// A value as JSON text. A table with a first element is a list, any other an
/// object; `quintet.json.null` is null.
pub(crate) fn encode(value: &Value, meter: &Meter) -> Result<Vec<u8>, String> {
    let json = to_json(value, meter, 0)?;
    serde_json::to_vec(&json).map_err(|error| error.to_string())
}

fn to_json(value: &Value, meter: &Meter, depth: usize) -> Result<Json, String> {
    meter
        .charge(2)
        .map_err(|_stop| "budget used up".to_owned())?;
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} nested tables"));
    }
    Ok(match value {
        Value::Nil => Json::Null,
        Value::LightUserData(_) if *value == Value::NULL => Json::Null,
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(value) => Json::Number((*value).into()),
        Value::Number(value) => {
            let number = Number::from_f64(*value);
            Json::Number(number.ok_or("JSON has no nan and no infinity")?)
        }
        Value::String(text) => Json::String(
            text.to_str()
                .map_err(|_| "JSON takes only strings in UTF-8")?
                .to_owned(),
        ),
        Value::Table(table) => table_to_json(table, meter, depth)?,
        Value::Function(_) | opaque!() => {
            return Err(format!("JSON has no {}", value.type_name()));
        }
    })
}

fn table_to_json(table: &Table, meter: &Meter, depth: usize) -> Result<Json, String> {
    let failed = |error: mlua::Error| error.to_string();
    let len = table.raw_len();
    if len > 0 {
        let mut list = Vec::new();
        for at in 1..=len {
            let item: Value = table.raw_get(at).map_err(failed)?;
            list.push(to_json(&item, meter, depth + 1)?);
        }
        return Ok(Json::Array(list));
    }
    let mut object = Map::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(failed)?;
        let Value::String(key) = key else {
            return Err("the keys of an object must be strings".into());
        };
        let key = key.to_str().map_err(|_| "a key is not UTF-8")?.to_owned();
        object.insert(key, to_json(&value, meter, depth + 1)?);
    }
    Ok(Json::Object(object))
}

/// Reads JSON text.
pub(crate) fn decode(lua: &Lua, text: &[u8], meter: &Meter) -> Result<Value, String> {
    if text.len() > DECODED_MAX {
        return Err(format!("at most {DECODED_MAX} bytes of JSON"));
    }
    meter
        .charge(text.len() as u64 / 8)
        .map_err(|_stop| "budget used up".to_owned())?;
    let json: Json = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    from_json(lua, &json).map_err(|error| error.to_string())
}

fn from_json(lua: &Lua, json: &Json) -> LuaResult<Value> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Integer(value),
            None => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(list) => {
            let table = lua.create_table_with_capacity(list.len(), 0)?;
            for (at, item) in list.iter().enumerate() {
                table.raw_set(at + 1, from_json(lua, item)?)?;
            }
            Value::Table(table)
        }
        Json::Object(object) => {
            let table = lua.create_table_with_capacity(0, object.len())?;
            for (key, item) in object {
                table.raw_set(lua.create_string(key)?, from_json(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

/// A value for a durable table: a string as its bytes, all else as JSON.
pub(crate) fn store(value: &Value, meter: &Meter) -> Result<Option<Box<[u8]>>, String> {
    let mut bytes = Vec::new();
    if value.is_nil() {
        return Ok(None);
    }
    match value.as_string() {
        Some(text) => {
            bytes.push(b's');
            bytes.extend_from_slice(&text.as_bytes());
        }
        None => {
            bytes.push(b'j');
            bytes.extend_from_slice(&encode(value, meter)?);
        }
    }
    Ok(Some(bytes.into()))
}

/// Loads a value that [`store`] stored.
pub(crate) fn load(lua: &Lua, stored: Option<&[u8]>, meter: &Meter) -> Result<Value, String> {
    match stored {
        None => Ok(Value::Nil),
        Some([b'j', json @ ..]) => decode(lua, json, meter),
        // Also what another writer may have put there.
        Some([b's', text @ ..] | text) => lua
            .create_string(text)
            .map(Value::String)
            .map_err(|error| error.to_string()),
    }
}
