//! Users and grants, as they are configured.

use quintet_types::Pattern;

use crate::credential::{Password, Secret, Token};
use crate::rights::Rights;

/// Stands in a grant for clients that have not logged in.
pub const ANONYMOUS: &str = "anonymous";

/// Somebody who may log in.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// 1 to 128 bytes of printable ASCII without spaces and colons.
    pub name: String,
    pub password: Option<Password>,
    pub secret: Option<Secret>,
    pub tokens: Vec<Token>,
    /// Grants to these are grants to the user.
    pub groups: Vec<String>,
}

/// The user or group that a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A user, or [`ANONYMOUS`].
    User(String),
    Group(String),
}

/// Rights of somebody.
#[derive(Clone, Debug)]
pub struct Grant {
    pub to: Holder,
    pub queues: Vec<Pattern>,
    pub rights: Rights,
}
