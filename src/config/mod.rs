//! Flags, configuration file and board data, read into one validated value. Never reaches the system.
