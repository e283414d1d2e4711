//! Performs one action through the rooms and reports one outcome. Neither decides nor retries.
