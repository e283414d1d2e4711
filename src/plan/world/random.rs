//! Seeded choices and random pods.

use crate::model::observed::NodeFacts;
use crate::model::pod::{Container, Pod, Probe, ProbeHandler, PullPolicy, RestartPolicy, Volume, VolumeKind};
use crate::plan::testing;

/// splitmix64: the same seed makes the same world.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `below` - 1.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

const POLICIES: [RestartPolicy; 3] = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];

fn probe(random: &mut Random, most_successes: u64) -> Option<Probe> {
    random.percent(30).then(|| Probe {
        handler: ProbeHandler::TcpSocket { host: None, port: 80 },
        initial_delay_secs: u32::try_from(random.below(5)).unwrap(),
        period_secs: u32::try_from(1 + random.below(10)).unwrap(),
        timeout_secs: 1,
        success_threshold: u32::try_from(1 + random.below(most_successes)).unwrap(),
        failure_threshold: u32::try_from(1 + random.below(3)).unwrap(),
        termination_grace_secs: random.percent(30).then(|| random.below(10)),
    })
}

fn container(random: &mut Random, name: &str) -> Container {
    let mut container = testing::container(name);
    container.image = format!("image{}", random.below(3));
    container.pull_policy = random.pick(&[PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::IfNotPresent]);
    container
}

/// A pod with up to three init containers, sidecars among them, and up to three ordinary ones.
pub(super) fn pod(random: &mut Random) -> Pod {
    let mut pod = testing::pod("pod", &[]);
    pod.spec.restart_policy = random.pick(&POLICIES);
    pod.spec.host_network = random.percent(20);
    pod.spec.termination_grace_secs = random.pick(&[0, 1, 5, 30]);
    for i in 0..random.below(4) {
        let mut init = container(random, &format!("init{i}"));
        if random.percent(50) {
            init.restart_policy = Some(RestartPolicy::Always);
            init.startup = probe(random, 1);
            init.liveness = probe(random, 1);
        }
        pod.spec.init_containers.push(init);
    }
    for i in 0..=random.below(3) {
        let mut main = container(random, &format!("main{i}"));
        main.startup = probe(random, 1);
        main.readiness = probe(random, 2);
        main.liveness = probe(random, 1);
        if random.percent(15) {
            main.restart_policy = Some(random.pick(&POLICIES));
        }
        pod.spec.containers.push(main);
    }
    for i in 0..random.below(3) {
        let kind = VolumeKind::EmptyDir { memory: false, size_limit: None };
        pod.spec.volumes.push(Volume { name: format!("volume{i}"), kind });
    }
    pod
}

pub(super) fn node(boot: u64) -> NodeFacts {
    NodeFacts { boot_id: format!("boot-{boot}"), host_ips: vec!["192.0.2.1".parse().unwrap()], ..NodeFacts::default() }
}
