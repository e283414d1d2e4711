//! Which handler a request goes to. Pure.

use super::query;
use crate::model::api::PodVerb;
use hyper::Method;

/// A container by name, as paths give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The namespace.
    pub(super) namespace: String,
    /// The pod's full name.
    pub(super) pod: String,
    /// The pod's UID, where the path has one.
    pub(super) uid: Option<String>,
    /// The container.
    pub(super) container: String,
}

/// A known path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Healthz,
    Pods,
    ContainerLogs(Target),
    Exec(Target),
    Version,
    Images,
    Import,
    Events,
    Inspect,
    InspectPod { namespace: String, pod: String },
    Stats,
    Usage,
    Metrics,
    RemoveImages,
    Pod { namespace: String, pod: String, verb: PodVerb },
    Log,
    LogLevel,
    WrongMethod,
    Unknown,
}

impl Route {
    /// Whether the answer would be wrong as long as a pod is missing.
    pub(super) const fn is_about_pods(&self) -> bool {
        match self {
            Self::Pods
            | Self::ContainerLogs(_)
            | Self::Exec(_)
            | Self::InspectPod { .. }
            | Self::Usage
            | Self::Metrics
            | Self::RemoveImages
            | Self::Pod { .. } => true,
            Self::Healthz
            | Self::Version
            | Self::Images
            | Self::Import
            | Self::Events
            | Self::Inspect
            | Self::Stats
            | Self::Log
            | Self::LogLevel
            | Self::WrongMethod
            | Self::Unknown => false,
        }
    }
}

/// Chooses the handler. A path that cannot be decoded is an unknown one.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let path = path.strip_prefix('/').unwrap_or(path);
    let Ok(parts) = path.split('/').map(|part| query::decode(part, false)).collect::<Result<Vec<_>, _>>() else {
        return Route::Unknown;
    };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    if let (&Method::DELETE, ["armlet", "v1", "images"]) = (method, parts.as_slice()) {
        return Route::RemoveImages;
    }
    let (methods, route) = known(&parts);
    if route == Route::Unknown || methods.contains(method) { route } else { Route::WrongMethod }
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const BOTH: &[Method] = &[Method::GET, Method::POST];

fn known(parts: &[&str]) -> (&'static [Method], Route) {
    match parts {
        ["healthz"] | ["healthz", "ping"] => (GET, Route::Healthz),
        ["pods"] | ["pods", ""] => (GET, Route::Pods),
        ["metrics"] => (GET, Route::Metrics),
        ["containerLogs", ns, pod, container] => (GET, Route::ContainerLogs(target(ns, pod, None, container))),
        ["exec", ns, pod, container] => (BOTH, Route::Exec(target(ns, pod, None, container))),
        ["exec", ns, pod, uid, container] => (BOTH, Route::Exec(target(ns, pod, Some(uid), container))),
        ["armlet", "v1", rest @ ..] => own(rest),
        _ => (GET, Route::Unknown),
    }
}

fn own(parts: &[&str]) -> (&'static [Method], Route) {
    match parts {
        ["version"] => (GET, Route::Version),
        ["images"] => (GET, Route::Images),
        ["images", "import"] => (POST, Route::Import),
        ["events"] => (GET, Route::Events),
        ["inspect"] => (GET, Route::Inspect),
        ["inspect", ns, pod] => (GET, Route::InspectPod { namespace: (*ns).to_owned(), pod: (*pod).to_owned() }),
        ["stats"] => (GET, Route::Stats),
        ["usage"] => (GET, Route::Usage),
        ["pods", ns, pod, "stop"] => (POST, verb(ns, pod, PodVerb::Stop)),
        ["pods", ns, pod, "restart"] => (POST, verb(ns, pod, PodVerb::Restart)),
        ["log"] => (GET, Route::Log),
        ["log-level"] => (&[Method::GET, Method::PUT], Route::LogLevel),
        _ => (GET, Route::Unknown),
    }
}

fn verb(namespace: &str, pod: &str, verb: PodVerb) -> Route {
    Route::Pod { namespace: namespace.to_owned(), pod: pod.to_owned(), verb }
}

fn target(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> Target {
    Target {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(str::to_owned),
        container: container.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_handlers() {
        let logs = |ns: &str, pod: &str, container: &str| Route::ContainerLogs(target(ns, pod, None, container));
        for (method, path, want) in [
            (Method::GET, "/healthz", Route::Healthz),
            (Method::GET, "/pods", Route::Pods),
            (Method::GET, "/pods/", Route::Pods),
            (Method::POST, "/pods", Route::WrongMethod),
            (Method::GET, "/containerLogs/a/b/c", logs("a", "b", "c")),
            (Method::GET, "/containerLogs/a%2Fx/b/c", logs("a/x", "b", "c")),
            (Method::GET, "/containerLogs/a/b/c/d", Route::Unknown),
            (Method::GET, "/containerLogs/a/b", Route::Unknown),
            (Method::GET, "/containerLogs/%ff/b/c", Route::Unknown),
            (Method::DELETE, "/containerLogs/a/b/c", Route::WrongMethod),
            (Method::POST, "/exec/a/b/c", Route::Exec(target("a", "b", None, "c"))),
            (Method::GET, "/exec/a/b/u/c", Route::Exec(target("a", "b", Some("u"), "c"))),
            (Method::GET, "/armlet/v1/inspect/a/b", Route::InspectPod { namespace: "a".into(), pod: "b".into() }),
            (Method::GET, "/metrics", Route::Metrics),
            (Method::DELETE, "/armlet/v1/images", Route::RemoveImages),
            (Method::DELETE, "/armlet/v1/stats", Route::WrongMethod),
            (Method::POST, "/armlet/v1/pods/a/b/stop", verb("a", "b", PodVerb::Stop)),
            (Method::POST, "/armlet/v1/pods/a/b/restart", verb("a", "b", PodVerb::Restart)),
            (Method::GET, "/armlet/v1/pods/a/b/stop", Route::WrongMethod),
            (Method::POST, "/armlet/v1/pods/a/b/start", Route::Unknown),
            (Method::GET, "/armlet/v1/images/import", Route::WrongMethod),
            (Method::POST, "/armlet/v1/images/import", Route::Import),
            (Method::GET, "/armlet/v1/log", Route::Log),
            (Method::PUT, "/armlet/v1/log-level", Route::LogLevel),
            (Method::POST, "/armlet/v1/log-level", Route::WrongMethod),
            (Method::GET, "/armlet/v2/version", Route::Unknown),
            (Method::GET, "/", Route::Unknown),
            (Method::GET, "", Route::Unknown),
            (Method::GET, "//pods", Route::Unknown),
            (Method::OPTIONS, "*", Route::Unknown),
        ] {
            assert_eq!(route(&method, path), want, "{method} {path}");
        }
    }
}
