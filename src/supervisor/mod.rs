//! The supervisor and logger roles, process 1 and its child roles. Imports neither tokio nor any room but `model` and `sys`.
