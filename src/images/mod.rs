//! The image store: import, verify, unpack, delete. Decides no policy.
