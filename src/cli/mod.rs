//! The commands people type: clients of the server's API.
