//! Forms: query strings, urlencoded and multipart bodies, and the nesting that
//! Rack gives names such as `mesg[param1]` and `queue[coalesce_params][]`.

use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use serde_json::{Map, Value};

use crate::payer::{Payer, RequestMemory};
use crate::reply::Problem;
use crate::settings::{Limits, Settings};

/// Fields in the order they came. The last of a name counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    fields: Vec<(String, String)>,
}

impl Form {
    /// Adds one.
    ///
    /// # Errors
    /// There are more than `fields_max`.
    pub fn add(&mut self, name: String, value: String, limits: &Limits) -> Result<(), Problem> {
        if self.fields.len() >= limits.fields_max {
            return Err(Problem::TooManyFields(limits.fields_max));
        }
        self.fields.push((name, value));
        Ok(())
    }

    /// Adds those of a query string or of a urlencoded body.
    pub(crate) fn add_urlencoded(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Problem> {
        for (name, value) in form_urlencoded::parse(bytes) {
            self.add(name.into_owned(), value.into_owned(), limits)?;
        }
        Ok(())
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter().rev();
        fields.find_map(|(field, value)| (field == name).then_some(value.as_str()))
    }

    /// The values of all fields of that name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self.fields.iter();
        fields.filter_map(move |(field, value)| (field == name).then_some(value.as_str()))
    }

    /// True if there is a field of that name with anything in it.
    pub fn says(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_empty())
    }

    /// The fields `name[KEY]` as an object, `name[KEY][]` as arrays. Deeper
    /// nesting is left out: RQ has none.
    pub fn object(&self, name: &str) -> Option<Map<String, Value>> {
        let mut object = Map::new();
        let mut any = false;
        for (field, value) in &self.fields {
            let Some(rest) = field.strip_prefix(name).and_then(|r| r.strip_prefix('[')) else {
                continue;
            };
            let Some((key, rest)) = rest.split_once(']') else {
                continue;
            };
            any = true;
            match rest {
                "" => {
                    object.insert(key.to_owned(), Value::from(value.as_str()));
                }
                "[]" => {
                    let list = object
                        .entry(key)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(list) = list {
                        list.push(Value::from(value.as_str()));
                    }
                }
                _ => {}
            }
        }
        any.then_some(object)
    }
}

/// A body, and what it holds of what connections may.
pub type Whole = (Bytes, RequestMemory);

/// Reads a body whole; for forms and JSON, never for files.
///
/// # Errors
/// It is over `form_bytes_max`, too slow, or broke off; or connections hold as
/// much as they may, all together or those of its address or user.
pub async fn whole(request: Request, settings: &Settings) -> Result<Whole, Problem> {
    let timeout = settings.limits.timeout;
    match tokio::time::timeout(timeout, collected(request, settings)).await {
        Err(_) => Err(Problem::TooSlow),
        Ok(whole) => whole,
    }
}

async fn collected(request: Request, settings: &Settings) -> Result<Whole, Problem> {
    let payer = request.extensions().get::<Payer>();
    let payer = payer.cloned().unwrap_or_default();
    let mut body = request.into_body();
    let max = settings.limits.form_bytes_max;
    let mut bytes = BytesMut::new();
    let mut held = RequestMemory::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::BrokeOff)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let len = bytes.len() + data.len();
        if len > max {
            return Err(Problem::FormTooLarge(max));
        }
        if len > bytes.capacity() {
            // As much again as there was, so that little is moved, and no more
            // than is announced.
            let upper = body.size_hint().upper();
            let announced = upper.and_then(|left| usize::try_from(left).ok());
            let most = announced.map_or(usize::MAX, |left| len.saturating_add(left));
            let capacity = len.max((bytes.capacity() * 2).min(most));
            held.grow(settings, &payer, capacity - bytes.capacity())?;
            bytes.reserve(capacity - bytes.len());
        }
        bytes.extend_from_slice(data);
    }
    Ok((bytes.freeze(), held))
}

/// Kind of a form's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Urlencoded,
    /// With its boundary.
    Multipart(String),
    Json,
}

/// Told by its content type; without one it is urlencoded, as old clients send
/// it.
pub fn kind(content_type: Option<&str>) -> Kind {
    let content_type = content_type.unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Kind::Json;
    }
    match multer::parse_boundary(content_type) {
        Ok(boundary) => Kind::Multipart(boundary),
        Err(_) => Kind::Urlencoded,
    }
}

/// Reads a form's body of either kind into `form`; answers its share of what
/// connections may hold. A file among the fields of a
/// multipart body is a field like any other.
///
/// # Errors
/// As [`whole`]; or it is no form.
pub(crate) async fn read(
    kind: &Kind,
    request: Request,
    form: &mut Form,
    settings: &Settings,
) -> Result<RequestMemory, Problem> {
    let limits = &settings.limits;
    let (bytes, share) = whole(request, settings).await?;
    let Kind::Multipart(boundary) = kind else {
        form.add_urlencoded(&bytes, limits)?;
        return Ok(share);
    };
    let once = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
    let mut parts = multer::Multipart::new(once, boundary.as_str());
    let broken = |error: multer::Error| Problem::BadForm(error.to_string());
    while let Some(field) = parts.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        let value = field.bytes().await.map_err(broken)?;
        let value = String::from_utf8_lossy(&value).into_owned();
        form.add(name, value, limits)?;
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Form {
        let mut form = Form::default();
        form.add_urlencoded(text.as_bytes(), &Limits::default())
            .expect("within the limits");
        form
    }

    #[test]
    fn names_with_brackets_are_objects() {
        let form = form(
            "mesg[param1]=a+b&mesg%5Bdue%5D=7&x_format=html&mesg[hooks][]=1&mesg[hooks][]=2&mesgs[x]=1",
        );
        let object = form.object("mesg").expect("fields of mesg");
        assert_eq!(
            Value::Object(object),
            serde_json::json!({"param1": "a b", "due": "7", "hooks": ["1", "2"]})
        );
        assert_eq!(form.get("x_format"), Some("html"));
        assert_eq!(form.object("queue"), None);
    }

    #[test]
    fn the_last_of_a_name_counts() {
        assert_eq!(form("a=1&a=2&b=").get("a"), Some("2"));
        assert!(!form("b=").says("b"));
    }

    #[test]
    fn odd_nesting_harms_nothing() {
        let form = form("mesg[=1&mesg]=2&mesg[a=3&mesg[a][b][c]=4&mesg[a]=5&mesg[a][]=6&mesg[]=7");
        let object = form.object("mesg").expect("fields of mesg");
        assert_eq!(object.get("a"), Some(&Value::from("5")));
        assert_eq!(object.get(""), Some(&Value::from("7")));
    }

    #[test]
    fn fields_are_counted() {
        let limits = Limits {
            fields_max: 2,
            ..Limits::default()
        };
        let mut form = Form::default();
        assert!(form.add_urlencoded(b"a=1&b=2", &limits).is_ok());
        assert!(form.add_urlencoded(b"c=3", &limits).is_err());
    }

    #[test]
    fn the_content_type_decides_the_kind() {
        assert_eq!(kind(None), Kind::Urlencoded);
        assert_eq!(kind(Some("text/plain")), Kind::Urlencoded);
        assert_eq!(kind(Some("application/json; charset=utf-8")), Kind::Json);
        assert_eq!(
            kind(Some("multipart/form-data; boundary=\"x y\"")),
            Kind::Multipart("x y".to_owned())
        );
        assert_eq!(kind(Some("multipart/form-data")), Kind::Urlencoded);
    }
}
