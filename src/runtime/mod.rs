//! OCI specs, cgroups, the supervisor's client, and the create and exec roles.
