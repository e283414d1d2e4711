//! One file per volume kind. Decides no policy.
