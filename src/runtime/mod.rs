//! OCI specs, cgroups, the supervisor's client, and the create and exec roles.

pub mod accounts;
pub mod capability;
pub mod cgroup;
pub mod client;
pub mod create;
pub mod devices;
pub mod request;
pub mod seccomp;
pub mod spec;
