//! Reads reality into `model::observed` and statistics. Changes nothing.
