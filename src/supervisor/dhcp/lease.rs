//! The course of a lease (RFC 2131, 4.4): discover, request, hold, renew, rebind. Pure: time comes in, messages go out.

use super::packet::{Client, Heard, Say, Terms, read, write};
use crate::model::{BootTime, Millis};
use std::net::Ipv4Addr;

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send to everybody.
    Broadcast(Vec<u8>),
    /// Send to the server of the lease.
    Unicast(Ipv4Addr, Vec<u8>),
    /// The link has this address from now on.
    Apply(Terms),
    /// The link has no address any more.
    Drop,
}

/// Pauses before a message is repeated grow to this.
const LONGEST_PAUSE: Millis = Millis(64_000);
const FIRST_PAUSE: Millis = Millis(1_000);
/// Requests for one offer before another offer is looked for.
const MAX_REQUESTS: u32 = 4;
/// A renewal is not repeated faster (RFC 2131, 4.4.5).
const RENEW_PAUSE: Millis = Millis(60_000);

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    client: Client,
    xid: u32,
    begun: BootTime,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Looks for an offer.
    Discover { next: BootTime, pause: Millis },
    /// Has asked for an offer.
    Request { offer: Terms, next: BootTime, pause: Millis, tries: u32 },
    /// Has an address.
    Bound { lease: Lease, next: BootTime },
}

/// An address and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    terms: Terms,
    renew: BootTime,
    rebind: BootTime,
    /// None: for ever.
    expires: Option<BootTime>,
}

impl Lease {
    fn new(terms: Terms, now: BootTime) -> Self {
        let seconds = |s: u32| now + Millis::from_secs(u64::from(s));
        if terms.lease == u32::MAX {
            let never = BootTime(u64::MAX);
            return Self { terms, renew: never, rebind: never, expires: None };
        }
        let lease = terms.lease;
        let rebind = terms.rebind.filter(|t| *t <= lease).unwrap_or(lease / 8 * 7);
        let renew = terms.renew.filter(|t| *t <= rebind).unwrap_or((lease / 2).min(rebind));
        Self { renew: seconds(renew), rebind: seconds(rebind), expires: Some(seconds(lease)), terms }
    }
}

impl Machine {
    /// `seed` distinguishes this run's messages from others'.
    pub(crate) fn new(client: Client, seed: u32, now: BootTime) -> Self {
        Self { client, xid: seed, begun: now, state: State::Discover { next: now, pause: FIRST_PAUSE } }
    }

    /// When [`Machine::tick`] is to be called.
    pub(crate) fn deadline(&self) -> BootTime {
        match &self.state {
            State::Discover { next, .. } | State::Request { next, .. } | State::Bound { next, .. } => *next,
        }
    }

    /// The cable was plugged in: the network may be another one. The address is asked for at once.
    pub(crate) fn plugged_in(&mut self, now: BootTime) {
        match &mut self.state {
            State::Bound { next, lease } => {
                lease.renew = lease.renew.min(now);
                lease.rebind = lease.rebind.min(now);
                *next = now;
            }
            State::Discover { next, pause } | State::Request { next, pause, .. } => {
                *next = now;
                *pause = FIRST_PAUSE;
            }
        }
    }

    /// Does what is due. `noise` spreads the repetitions of many nodes that start at once.
    pub(crate) fn tick(&mut self, now: BootTime, noise: u64) -> Vec<Output> {
        if now < self.deadline() {
            return Vec::new();
        }
        let secs = u16::try_from(now.since(self.begun).as_secs()).unwrap_or(u16::MAX);
        let say = |say| write(&self.client, self.xid, secs, say);
        match &mut self.state {
            State::Discover { next, pause } => {
                *next = now + jitter(*pause, noise);
                *pause = longer(*pause);
                vec![Output::Broadcast(say(Say::Discover))]
            }
            State::Request { offer, next, pause, tries } => {
                if *tries >= MAX_REQUESTS {
                    self.state = State::Discover { next: now, pause: FIRST_PAUSE };
                    return self.tick(now, noise);
                }
                *tries = tries.saturating_add(1);
                *next = now + jitter(*pause, noise);
                *pause = longer(*pause);
                vec![Output::Broadcast(say(Say::Select { address: offer.address, server: offer.server }))]
            }
            State::Bound { lease, next } => {
                if lease.expires.is_some_and(|at| at <= now) {
                    self.restart(now);
                    let mut outputs = vec![Output::Drop];
                    outputs.extend(self.tick(now, noise));
                    return outputs;
                }
                let message = say(Say::Renew { address: lease.terms.address });
                let rebinding = lease.rebind <= now;
                let end = if rebinding { lease.expires.unwrap_or(BootTime(u64::MAX)) } else { lease.rebind };
                // Half of the time that is left, and not more often than each minute.
                let half = Millis(end.since(now).0 / 2);
                *next = (now + half.max(RENEW_PAUSE)).min(end.max(now + Millis(1)));
                vec![if rebinding { Output::Broadcast(message) } else { Output::Unicast(lease.terms.server, message) }]
            }
        }
    }

    /// A message came in.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: BootTime) -> Vec<Output> {
        let Some(heard) = read(bytes, &self.client, self.xid) else { return Vec::new() };
        match (&self.state, heard) {
            (State::Discover { .. }, Heard::Offer(offer)) => {
                self.state = State::Request { offer, next: now, pause: FIRST_PAUSE, tries: 0 };
                self.tick(now, 0)
            }
            (State::Request { offer, .. }, Heard::Ack(terms)) if terms.server == offer.server => self.hold(terms, now),
            (State::Request { .. }, Heard::Nak) => {
                self.restart(now);
                Vec::new()
            }
            // Only an answer to a renewal that was sent: before its time nothing is asked.
            (State::Bound { lease, .. }, Heard::Ack(terms)) if lease.renew <= now => self.hold(terms, now),
            (State::Bound { lease, .. }, Heard::Nak) if lease.renew <= now => {
                self.restart(now);
                vec![Output::Drop]
            }
            _ => Vec::new(),
        }
    }

    fn hold(&mut self, terms: Terms, now: BootTime) -> Vec<Output> {
        let lease = Lease::new(terms.clone(), now);
        let next = lease.renew;
        self.state = State::Bound { lease, next };
        vec![Output::Apply(terms)]
    }

    fn restart(&mut self, now: BootTime) {
        self.xid = self.xid.wrapping_add(1);
        self.begun = now;
        self.state = State::Discover { next: now, pause: FIRST_PAUSE };
    }
}

fn longer(pause: Millis) -> Millis {
    Millis(pause.0.saturating_mul(2).min(LONGEST_PAUSE.0))
}

/// The pause and up to a quarter more.
fn jitter(pause: Millis, noise: u64) -> Millis {
    Millis(pause.0.saturating_add(noise % (pause.0 / 4).max(1)))
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::{USUAL, answer, client};
    use super::*;
    use proptest::prelude::*;

    const START: BootTime = BootTime(1000);

    fn bound() -> Machine {
        let mut machine = Machine::new(client(), 7, START);
        assert!(matches!(machine.tick(START, 0)[..], [Output::Broadcast(_)]));
        assert!(matches!(machine.receive(&answer(7, 2, USUAL), START)[..], [Output::Broadcast(_)]));
        let Output::Apply(terms) = &machine.receive(&answer(7, 5, USUAL), START)[0] else { panic!() };
        assert_eq!(terms.address, Ipv4Addr::new(10, 0, 2, 15));
        machine
    }

    fn after(secs: u64) -> BootTime {
        START + Millis::from_secs(secs)
    }

    #[test]
    fn a_lease_is_renewed_at_half_time_and_sleeps_until_then() {
        let mut machine = bound();
        assert_eq!(machine.deadline(), after(43_200));
        assert!(machine.tick(after(43_199), 0).is_empty());
        let Output::Unicast(server, _) = machine.tick(after(43_200), 0)[0] else { panic!() };
        assert_eq!(server, Ipv4Addr::new(10, 0, 2, 2));
        assert!(matches!(machine.receive(&answer(7, 5, USUAL), after(43_201))[..], [Output::Apply(_)]));
        assert_eq!(machine.deadline(), after(43_201 + 43_200));
    }

    #[test]
    fn a_silent_server_loses_the_lease_in_the_end() {
        let mut machine = bound();
        let mut seen = (0, 0);
        let mut now = START;
        for _ in 0..1000 {
            now = machine.deadline();
            match &machine.tick(now, 0)[..] {
                [Output::Unicast(..)] => seen.0 += 1,
                [Output::Broadcast(_)] => seen.1 += 1,
                [Output::Drop, Output::Broadcast(_)] => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(now, after(86_400));
        assert!((2..20).contains(&seen.0) && (2..20).contains(&seen.1), "{seen:?}");
    }

    #[test]
    fn a_refusal_starts_over() {
        let mut machine = bound();
        assert!(machine.receive(&answer(7, 6, &[]), after(1)).is_empty(), "nobody asked");
        machine.tick(after(43_200), 0);
        assert_eq!(machine.receive(&answer(7, 6, &[]), after(43_201)), [Output::Drop]);
        assert!(matches!(machine.tick(after(43_201), 0)[..], [Output::Broadcast(_)]));
        assert!(machine.receive(&answer(7, 2, USUAL), after(43_201)).is_empty(), "an old answer");
    }

    #[test]
    fn a_plugged_cable_asks_at_once() {
        let mut machine = bound();
        machine.plugged_in(after(5));
        assert!(matches!(machine.tick(after(5), 0)[..], [Output::Broadcast(_)]));
        assert!(matches!(machine.receive(&answer(7, 5, USUAL), after(6))[..], [Output::Apply(_)]));
        assert_eq!(machine.deadline(), after(6 + 43_200));
    }

    #[test]
    fn offers_that_lead_nowhere_are_given_up() {
        let mut machine = Machine::new(client(), 7, START);
        machine.tick(START, 0);
        machine.receive(&answer(7, 2, USUAL), START);
        for _ in 0..4 {
            let now = machine.deadline();
            machine.tick(now, 0);
        }
        assert!(matches!(machine.state, State::Discover { .. }));
    }

    proptest! {
        #[test]
        fn time_never_stands_still(
            steps in prop::collection::vec((0..4u8, any::<u32>(), prop::collection::vec(any::<u8>(), 0..4)), 0..60),
        ) {
            let mut machine = Machine::new(client(), 7, START);
            let mut now = START;
            for (what, number, value) in steps {
                match what {
                    0 => now = now + Millis(u64::from(number)),
                    1 => now = now.max(machine.deadline().min(now + Millis(u64::from(number)))),
                    2 => machine.plugged_in(now),
                    _ => {
                        let kind = [2, 5, 6][usize::try_from(number % 3).unwrap()];
                        let options = [USUAL, &[(58, &value[..]), (51, &value[..])]].concat();
                        machine.receive(&answer(machine.xid, kind, &options), now);
                    }
                }
                machine.tick(now, u64::from(number));
                // Whatever happened, what is due was done.
                prop_assert!(machine.deadline() > now);
            }
        }
    }
}
