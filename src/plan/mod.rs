//! The pure decisions: what to do next for one pod and for the node. Never reads a clock, touches a disk, awaits or logs.
