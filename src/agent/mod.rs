//! The one loop, the sources of desired pods, and the only writer of facts and status.
