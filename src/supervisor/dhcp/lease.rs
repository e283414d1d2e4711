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
/// Times of a server below this many seconds are not taken: it would be asked without end.
const SHORTEST: u32 = 30;
/// Questions after a cable was plugged in, before the network is taken for another one.
const MAX_CHECKS: u32 = 4;
/// How long a server is left alone that has offered an address and then refused it.
const REFUSED_PAUSE: Millis = Millis(10_000);

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    client: Client,
    xid: u32,
    begun: BootTime,
    state: State,
    /// The address of a lease that nobody confirms any more stays until then, while another is looked for: the server
    /// may only be slower to come back than the cable.
    kept_until: Option<BootTime>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Looks for an offer.
    Discover { next: BootTime, pause: Millis },
    /// Has asked for an offer.
    Request { offer: Terms, next: BootTime, pause: Millis, tries: u32 },
    /// Has an address.
    Bound { lease: Lease, next: BootTime, check: Option<Check> },
}

/// An address that is being asked for again, since the cable was plugged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Check {
    pause: Millis,
    tries: u32,
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
        // What a server says of its own times holds as far as it makes sense; else RFC 2131, 4.4.5.
        let rebind = terms.rebind.filter(|t| (SHORTEST..=lease).contains(t)).unwrap_or(lease / 8 * 7);
        let renew = terms.renew.filter(|t| (SHORTEST..=rebind).contains(t)).unwrap_or((lease / 2).min(rebind));
        Self { renew: seconds(renew), rebind: seconds(rebind), expires: Some(seconds(lease)), terms }
    }
}

impl Machine {
    /// `seed` distinguishes this run's messages from others'.
    pub(crate) fn new(client: Client, seed: u32, now: BootTime) -> Self {
        let state = State::Discover { next: now, pause: FIRST_PAUSE };
        Self { client, xid: seed, begun: now, state, kept_until: None }
    }

    /// When [`Machine::tick`] is to be called.
    pub(crate) fn deadline(&self) -> BootTime {
        let next = match &self.state {
            State::Discover { next, .. } | State::Request { next, .. } | State::Bound { next, .. } => *next,
        };
        self.kept_until.map_or(next, |end| end.min(next))
    }

    /// The cable was plugged in: the network may be another one. The address is asked for at once.
    pub(crate) fn plugged_in(&mut self, now: BootTime) {
        match &mut self.state {
            State::Bound { next, lease, check } => {
                lease.renew = lease.renew.min(now);
                lease.rebind = lease.rebind.min(now);
                *next = now;
                *check = Some(Check { pause: FIRST_PAUSE, tries: 0 });
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
        if self.kept_until.is_some_and(|end| end <= now) {
            self.kept_until = None;
            let mut outputs = vec![Output::Drop];
            outputs.extend(self.tick(now, noise));
            return outputs;
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
            State::Bound { lease, next, check } => {
                if lease.expires.is_some_and(|at| at <= now) {
                    self.restart(now);
                    let mut outputs = vec![Output::Drop];
                    outputs.extend(self.tick(now, noise));
                    return outputs;
                }
                if let Some(check) = check {
                    if check.tries >= MAX_CHECKS {
                        self.kept_until = Some(lease.expires.unwrap_or(BootTime(u64::MAX)));
                        self.restart(now);
                        return self.tick(now, noise);
                    }
                    check.tries = check.tries.saturating_add(1);
                    *next = now + jitter(check.pause, noise);
                    check.pause = longer(check.pause);
                    return vec![Output::Broadcast(say(Say::Renew { address: lease.terms.address }))];
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
                self.state = State::Discover { next: now + REFUSED_PAUSE, pause: FIRST_PAUSE };
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
        self.kept_until = None;
        self.state = State::Bound { lease, next, check: None };
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
    fn a_plugged_cable_without_an_answer_leads_to_another_address() {
        let mut machine = bound();
        machine.plugged_in(after(100));
        let mut at = Vec::new();
        while matches!(machine.state, State::Bound { .. }) {
            let now = machine.deadline();
            at.push(now.since(after(100)).as_secs());
            assert!(matches!(machine.tick(now, 0)[..], [Output::Broadcast(_)]), "it keeps its address meanwhile");
        }
        assert_eq!(at, [0, 1, 3, 7, 15]);
        // The other network's server has another address, which replaces the old one.
        let now = after(120);
        assert!(matches!(machine.receive(&answer(machine.xid, 2, USUAL), now)[..], [Output::Broadcast(_)]));
        assert!(matches!(machine.receive(&answer(machine.xid, 5, USUAL), now)[..], [Output::Apply(_)]));
        assert_eq!(machine.deadline(), after(120 + 43_200));

        // Where there is no server at all the address goes when its time is over, and not before.
        machine.plugged_in(now);
        let mut dropped = None;
        while dropped.is_none() {
            let now = machine.deadline();
            let outputs = machine.tick(now, 0);
            dropped = outputs.contains(&Output::Drop).then_some(now);
        }
        assert_eq!(dropped, Some(after(120 + 86_400)));
        assert!(machine.deadline() < after(120 + 86_400 + 100));
    }

    #[test]
    fn times_that_make_no_sense_are_not_taken() {
        let usual = (43_200, 75_600);
        for (renew, rebind, lease, wanted) in [
            (Some(0), Some(0), 86_400, usual),
            (Some(29), Some(29), 86_400, usual),
            (Some(30), Some(31), 86_400, (30, 31)),
            (Some(100), Some(200), 86_400, (100, 200)),
            (Some(300), Some(200), 86_400, (200, 200)),
            (Some(100), Some(90_000), 86_400, (100, 75_600)),
            (None, None, 86_400, usual),
            (Some(0), Some(0), 60, (30, 49)),
        ] {
            let Some(Heard::Ack(terms)) = read(&answer(7, 5, USUAL), &client(), 7) else { panic!() };
            let found = Lease::new(Terms { renew, rebind, lease, ..terms }, BootTime(0));
            let seconds = |at: BootTime| at.0 / 1000;
            assert_eq!((seconds(found.renew), seconds(found.rebind)), wanted, "{renew:?} {rebind:?} {lease}");
        }
    }

    #[test]
    fn a_server_that_refuses_what_it_offers_is_left_alone_for_a_while() {
        let mut machine = Machine::new(client(), 7, START);
        machine.tick(START, 0);
        machine.receive(&answer(7, 2, USUAL), START);
        assert!(machine.receive(&answer(7, 6, &[]), START).is_empty());
        assert_eq!(machine.deadline(), after(10));
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
