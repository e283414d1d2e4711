//! Kubernetes JSON and YAML: parsing, defaulting, validation, conversion from and to `model`. Never reaches the system.
