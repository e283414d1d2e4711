//! The kubelet's HTTP API. Changes no facts.
