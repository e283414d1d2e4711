//! What outlives what: the agent, the logger, a create child, the supervisor, the machine.
//!
//! Two disks, five boots: one bare guest in which armlet's processes are started and killed by hand, and one node that is
//! started again in order, and whose power is cut. Moments are drawn from a seed (`ARMLET_SEED`), which a failure prints;
//! `ARMLET_CAMPAIGN_SECONDS` lets the random parts go on for longer.

mod by_hand;
mod kills;
mod node;
mod reboot;
mod upgrade;

use std::time::{Duration, Instant};

/// How long anything may take on a machine that has other things to do.
const LONG: Duration = Duration::from_secs(120);

/// Random moments that can be had again.
struct Seed {
    state: u64,
}

impl Seed {
    /// `ARMLET_SEED`, or always the same. Shown when the test fails.
    fn new() -> Self {
        let state = std::env::var("ARMLET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_129);
        announce(state);
        Self { state }
    }

    /// A number below `bound` (xorshift64*).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

#[expect(clippy::print_stderr, reason = "a failure is seen with the seed that brings it back")]
fn announce(seed: u64) {
    eprintln!("ARMLET_SEED={seed}");
}

/// How often something random is done: `few` times, or for as long as the campaign takes.
#[expect(clippy::disallowed_methods, reason = "a campaign lasts as long as it was asked to")]
fn rounds(few: usize) -> impl Iterator<Item = usize> {
    let seconds = std::env::var("ARMLET_CAMPAIGN_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    (0..).take_while(move |round| *round < few || Instant::now() < end)
}
