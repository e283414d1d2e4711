//! Identifiers. Each is checked once, when it is made, so that it can be used in a path without a second look.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} is not valid: {why}")]
pub struct InvalidId {
    /// Which identifier was being read.
    pub kind: &'static str,
    /// The text as given, cut to 80 characters.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

fn check(kind: &'static str, text: &str, max: usize, ok: fn(u8) -> bool, why: &'static str) -> Result<(), InvalidId> {
    let plain = !text.is_empty() && text.len() <= max && text.bytes().all(ok);
    if plain && !text.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(InvalidId { kind, text: text.chars().take(80).collect(), why })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $ok:expr, $why:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text and wraps it.
            ///
            /// # Errors
            /// [`InvalidId`] names the rule that the text breaks.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check($kind, &text, $max, $ok, $why)?;
                Ok(Self(text))
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A pod's UID: the hash of a static pod's source, or what the API server gave.
    PodUid, "pod UID", 63,
    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-',
    "up to 63 of a-z, 0-9 and '-', not starting with '-'"
);

id!(
    /// One attempt of one container: 32 lower-case hexadecimal digits. Never used twice on a node.
    ContainerId, "container id", 64,
    |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
    "up to 64 of 0-9 and a-f"
);

id!(
    /// An image's id: the hexadecimal sha256 of its configuration, without the `sha256:` prefix.
    ImageId, "image id", 64,
    |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
    "up to 64 of 0-9 and a-f"
);

impl ContainerId {
    /// Makes an id of 128 bits.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_folder() {
        for bad in ["", ".", "..", "-x", "a/b", "a\0b", "A", "a b", &"a".repeat(64)] {
            assert!(PodUid::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "xyz", "../a", "AB", &"a".repeat(65)] {
            assert!(ContainerId::new(bad).is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<PodUid>("\"../etc\"").is_err());
    }
}
