//! Durable facts. The only importer of sled; knows no Kubernetes rules.
