//! Names of images, normalised as Docker and the kubelet do (distribution/reference: `ParseNormalizedNamed`).

use std::fmt;

/// Why a text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {text:?}: {why}")]
pub struct ReferenceError {
    /// The text as given, cut to 200 characters.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

/// What a pod's `image` field asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A repository with a tag, such as `docker.io/library/nginx:latest`.
    Tag {
        /// Domain and path.
        repository: String,
        /// `latest` where none was given.
        tag: String,
    },
    /// A repository with a digest; a tag beside it is dropped, as the digest decides.
    Digest {
        /// Domain and path.
        repository: String,
        /// `sha256:` and 64 hexadecimal digits.
        digest: String,
    },
    /// An image id: 64 hexadecimal digits, with or without `sha256:` in front.
    Id(String),
}

const TAG: &str = "invalid reference format: a tag is up to 128 of A-Z, a-z, 0-9, '_', '.' and '-'";
const PATH: &str = "invalid reference format";
const UPPER: &str = "invalid reference format: repository name must be lowercase";
const DIGEST: &str = "invalid digest: expected sha256: and 64 hexadecimal digits";

impl Reference {
    /// Reads and normalises a reference.
    ///
    /// # Errors
    /// The text breaks the grammar.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        Self::read(text).map_err(|why| ReferenceError { text: text.chars().take(200).collect(), why })
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        let bare = text.strip_prefix("sha256:").unwrap_or(text);
        if is_hex64(bare) {
            return Ok(Self::Id(bare.to_owned()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            // A colon before the last slash belongs to the registry's port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        let repository = normalise_repository(name)?;
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(TAG);
        }
        if let Some(digest) = digest {
            let valid = digest.strip_prefix("sha256:").is_some_and(is_hex64);
            return if valid { Ok(Self::Digest { repository, digest: digest.to_owned() }) } else { Err(DIGEST) };
        }
        Ok(Self::Tag { repository, tag: tag.unwrap_or("latest").to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag { repository, tag } => write!(f, "{repository}:{tag}"),
            Self::Digest { repository, digest } => write!(f, "{repository}@{digest}"),
            Self::Id(id) => write!(f, "sha256:{id}"),
        }
    }
}

/// Whether the text is 64 lower-case hexadecimal digits.
pub(super) fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().enumerate().all(|(i, b)| word(b) || (i > 0 && (b == b'.' || b == b'-')))
}

/// `nginx` -> `docker.io/library/nginx`, `me/app` -> `docker.io/me/app`, `host:5000/app` as it is.
fn normalise_repository(name: &str) -> Result<String, &'static str> {
    if name.is_empty() || name.len() > 255 {
        return Err(PATH);
    }
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (first, rest),
        _ => ("docker.io", name),
    };
    let domain = if domain == "index.docker.io" { "docker.io" } else { domain };
    if !is_domain(domain) {
        return Err(PATH);
    }
    for component in path.split('/') {
        check_component(component)?;
    }
    if domain == "docker.io" && !path.contains('/') {
        return Ok(format!("docker.io/library/{path}"));
    }
    Ok(format!("{domain}/{path}"))
}

/// The first component is a registry when it could not be a Docker Hub user.
fn is_domain_like(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !domain.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let port_ok = port.is_none_or(|p| !p.is_empty() && p.len() <= 5 && p.bytes().all(|b| b.is_ascii_digit()));
    let v6 = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_ok = match v6 {
        Some(v6) => !v6.is_empty() && v6.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        }),
    };
    port_ok && host_ok
}

/// `[a-z0-9]+` parts joined by `.`, `_`, `__` or any number of `-`.
fn check_component(component: &str) -> Result<(), &'static str> {
    if component.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(UPPER);
    }
    let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().is_some_and(alnum) || !bytes.last().is_some_and(alnum) {
        return Err(PATH);
    }
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let good = |s: &str| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-');
    if separators.into_iter().all(good) { Ok(()) } else { Err(PATH) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalised_as_docker_does() {
        let hex = "0123456789abcdef".repeat(4);
        let digest = format!("sha256:{hex}");
        for (given, expect) in [
            ("nginx", "docker.io/library/nginx:latest".to_owned()),
            ("nginx:1.27", "docker.io/library/nginx:1.27".to_owned()),
            ("me/app", "docker.io/me/app:latest".to_owned()),
            ("docker.io/nginx", "docker.io/library/nginx:latest".to_owned()),
            ("index.docker.io/me/app", "docker.io/me/app:latest".to_owned()),
            ("localhost/app", "localhost/app:latest".to_owned()),
            ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1".to_owned()),
            ("[::1]:5000/a", "[::1]:5000/a:latest".to_owned()),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10".to_owned()),
            ("a.b/c-d--e/f__g.h_i:Tag-1.x", "a.b/c-d--e/f__g.h_i:Tag-1.x".to_owned()),
            (&format!("nginx@{digest}"), format!("docker.io/library/nginx@{digest}")),
            (&format!("nginx:1.27@{digest}"), format!("docker.io/library/nginx@{digest}")),
            (&hex, digest.clone()),
            (&digest, digest.clone()),
        ] {
            assert_eq!(Reference::parse(given).map(|r| r.to_string()), Ok(expect), "{given}");
        }
    }

    #[test]
    fn what_docker_refuses_is_refused() {
        for bad in [
            "",
            ":",
            "/",
            "a/",
            "/a",
            "a//b",
            "nginx:",
            "nginx:-x",
            "Nginx",
            "me/App",
            "a b",
            "nginx@sha256:12",
            "nginx@md5:0123",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "host:port/a",
            "ho_st.x/a",
            "../a",
            "a:b:c",
            "é",
            &"a".repeat(256),
            &format!("a:{}", "t".repeat(129)),
        ] {
            assert!(Reference::parse(bad).is_err(), "{bad:?}");
        }
    }
}
