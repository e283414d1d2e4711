//! Tables over whole specs.

use super::*;
use crate::model::action::CpuMax;
use crate::model::pod::{DnsConfig, DnsPolicy, PodSpec, PullPolicy, ResourceRequirements, Resources, RestartPolicy};
use crate::model::pod::{Security, Source, TerminationMessagePolicy};
use crate::model::{BootTime, PodUid, WallTime};
use oci_spec::runtime::LinuxNamespaceType as Namespace;

const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv/web:/bin/false\n";
const GROUP: &[u8] = b"root:x:0:\nweb:x:34:\nssl:x:101:web\n";

/// Everything that [`Inputs`] borrows.
struct World {
    pod: Pod,
    container: Container,
    id: ContainerId,
    entrypoint: Vec<String>,
    command: Vec<String>,
    env: Vec<String>,
    working_dir: &'static str,
    user: &'static str,
    root: OverlayRoot,
    sandbox: SandboxEntry,
    limits: ContainerLimits,
    volumes: Vec<Bind>,
    managed: Vec<Bind>,
    masked: Vec<String>,
    seccomp_default: bool,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn bind(source: &str, destination: &str, read_only: bool) -> Bind {
    Bind { source: source.into(), destination: destination.into(), read_only }
}

fn container() -> Container {
    Container {
        name: "app".into(),
        image: "app:1".into(),
        pull_policy: PullPolicy::IfNotPresent,
        command: Vec::new(),
        args: Vec::new(),
        working_dir: None,
        env: Vec::new(),
        ports: Vec::new(),
        resources: ResourceRequirements::default(),
        mounts: Vec::new(),
        liveness: None,
        readiness: None,
        startup: None,
        termination_message_path: "/dev/termination-log".into(),
        termination_message_policy: TerminationMessagePolicy::File,
        restart_policy: None,
        security: Security::default(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

fn pod() -> Pod {
    Pod {
        uid: PodUid::new("u1").unwrap(),
        name: "p-node".into(),
        namespace: "default".into(),
        labels: [].into(),
        annotations: [].into(),
        source: Source::File { path: "/p.yaml".into(), document: 0 },
        manifest: (&serde_json::Value::Null).into(),
        spec: PodSpec {
            init_containers: Vec::new(),
            containers: Vec::new(),
            volumes: Vec::new(),
            restart_policy: RestartPolicy::Always,
            termination_grace_secs: 30,
            host_network: false,
            hostname: None,
            subdomain: None,
            dns_policy: DnsPolicy::Default,
            dns: DnsConfig::default(),
            host_aliases: Vec::new(),
            fs_group: None,
            sysctls: [].into(),
            priority_class_name: None,
            priority: 0,
            overhead: Resources::default(),
        },
    }
}

impl World {
    fn new() -> Self {
        let namespace = |fd: u32| Some(format!("/proc/1/fd/{fd}"));
        Self {
            pod: pod(),
            container: container(),
            id: ContainerId::new("0123abcd").unwrap(),
            entrypoint: texts(&["/entry"]),
            command: texts(&["cmd"]),
            env: texts(&["A=image", "B=image"]),
            working_dir: "",
            user: "",
            root: OverlayRoot { lower: vec!["/l".into()], upper: "/u".into(), work: "/w".into() },
            sandbox: SandboxEntry {
                pod: PodUid::new("u1").unwrap(),
                attempt: 0,
                host_network: false,
                netns: namespace(10),
                ipcns: namespace(11),
                utsns: namespace(12),
                created_at: BootTime(0),
                created_wall: WallTime::default(),
            },
            limits: ContainerLimits { cpu_weight: 35, oom_score_adj: 900, ..ContainerLimits::default() },
            volumes: Vec::new(),
            managed: vec![bind("/p/hosts", "/etc/hosts", false), bind("/p/shm", "/dev/shm", false)],
            masked: texts(&["/sys/devices/system/cpu/cpu0/thermal_throttle"]),
            seccomp_default: false,
        }
    }

    fn build(&self) -> Result<(Spec, CreateRequest), SpecError> {
        build(&Inputs {
            pod: &self.pod,
            container: &self.container,
            id: &self.id,
            image: ImageDefaults {
                entrypoint: &self.entrypoint,
                command: &self.command,
                env: &self.env,
                working_dir: self.working_dir,
                user: self.user,
            },
            passwd: PASSWD,
            group: GROUP,
            root: &self.root,
            sandbox: &self.sandbox,
            hostname: "p-node",
            cgroup: "kubepods/podu1/0123abcd",
            limits: &self.limits,
            volumes: &self.volumes,
            managed: &self.managed,
            host_devices: &[],
            masked: &self.masked,
            seccomp_default: self.seccomp_default,
        })
    }

    fn spec(&self) -> Spec {
        self.build().unwrap().0
    }

    fn process(&self) -> Process {
        self.spec().process().clone().unwrap()
    }
}

fn changed(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::new();
    change(&mut world);
    world
}

#[test]
fn entrypoint_command_and_args() {
    for (command, args, want) in [
        (vec![], vec![], vec!["/entry", "cmd"]),
        (vec![], vec!["x"], vec!["/entry", "x"]),
        (vec!["/own"], vec![], vec!["/own"]),
        (vec!["/own"], vec!["x", "y"], vec!["/own", "x", "y"]),
    ] {
        let world = changed(|world| {
            world.container.command = texts(&command);
            world.container.args = texts(&args);
        });
        assert_eq!(world.process().args().as_deref(), Some(texts(&want).as_slice()), "{command:?} {args:?}");
    }
    let none = changed(|world| (world.entrypoint, world.command) = (Vec::new(), Vec::new()));
    let error = none.build().unwrap_err();
    assert_eq!((error.to_string().as_str(), error.reason()), ("no command specified", "CreateContainerError"));
}

#[test]
fn variables_keep_their_place_and_later_ones_win() {
    let world = changed(|world| {
        world.container.env = vec![("B".into(), "pod".into()), ("C".into(), "x=y".into()), ("C".into(), "z".into())];
    });
    let want = ["A=image", "B=pod", "HOSTNAME=p-node", "C=z"];
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let want = [want.as_slice(), &[path, "HOME=/root"]].concat();
    assert_eq!(world.process().env().as_deref(), Some(texts(&want).as_slice()));
    let own = changed(|world| {
        world.env = texts(&["PATH=/own", "HOME="]);
        world.container.tty = true;
    });
    let want = texts(&["PATH=/own", "HOME=/root", "HOSTNAME=p-node", "TERM=xterm"]);
    assert_eq!(own.process().env().as_deref(), Some(want.as_slice()));
    assert_eq!(own.process().terminal(), Some(true));
}

#[test]
fn users_and_groups() {
    let security = |user, group, groups: &[u32], strict| Security {
        run_as_user: user,
        run_as_group: group,
        groups: groups.to_vec(),
        strict_groups: strict,
        ..Security::default()
    };
    for (image, security, uid, gid, groups) in [
        ("", security(None, None, &[], false), 0, 0, vec![0]),
        ("web", security(None, None, &[], false), 33, 34, vec![34, 101]),
        ("web", security(None, None, &[7, 101], false), 33, 34, vec![34, 101, 7]),
        ("web", security(None, None, &[7], true), 33, 34, vec![34, 7]),
        ("web", security(Some(0), None, &[], false), 0, 0, vec![0]),
        ("web", security(Some(1000), None, &[], false), 1000, 0, vec![0]),
        ("web", security(Some(33), Some(5), &[], false), 33, 5, vec![5, 101]),
        ("web:ssl", security(None, None, &[], false), 33, 101, vec![101]),
        ("", security(None, Some(9), &[], false), 0, 9, vec![9]),
    ] {
        let world = changed(|world| (world.user, world.container.security) = (image, security));
        let process = world.process();
        let user = process.user();
        let got = (user.uid(), user.gid(), user.additional_gids().clone().unwrap());
        assert_eq!(got, (uid, gid, groups), "image {image:?} {:?}", world.container.security);
    }
    assert!(changed(|world| world.user = "nobody").build().is_err());
}

#[test]
fn not_as_root() {
    let pod = r#"(pod: "p-node_default(u1)", container: app)"#;
    for (image, run_as, want) in [
        ("", Some(0), Some(format!("container's runAsUser breaks non-root policy {pod}"))),
        ("", None, Some(format!("container has runAsNonRoot and image will run as root {pod}"))),
        ("0:5", None, Some(format!("container has runAsNonRoot and image will run as root {pod}"))),
        (
            "web",
            None,
            Some(format!(
                "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root {pod}"
            )),
        ),
        ("33", None, None),
        ("web", Some(33), None),
    ] {
        let world = changed(|world| {
            world.user = image;
            world.container.security.run_as_non_root = true;
            world.container.security.run_as_user = run_as;
        });
        let error = world.build().err();
        assert_eq!(error.as_ref().map(ToString::to_string), want, "{image:?} {run_as:?}");
        assert!(error.is_none_or(|error| error.reason() == "CreateContainerConfigError"));
    }
}

#[test]
fn namespaces_are_the_pod_s() {
    let spec = World::new().spec();
    let of = |spec: &Spec, kind: Namespace| {
        let all = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
        all.into_iter().find(|namespace| namespace.typ() == kind).map(|namespace| namespace.path().clone())
    };
    assert_eq!(of(&spec, Namespace::Network), Some(Some("/proc/1/fd/10".into())));
    assert_eq!(of(&spec, Namespace::Ipc), Some(Some("/proc/1/fd/11".into())));
    for own in [Namespace::Pid, Namespace::Mount, Namespace::Cgroup] {
        assert_eq!(of(&spec, own), Some(None), "{own:?}");
    }
    assert_eq!(of(&spec, Namespace::User), None);
    let host = changed(|world| (world.sandbox.netns, world.sandbox.utsns) = (None, None)).spec();
    assert_eq!((of(&host, Namespace::Network), of(&host, Namespace::Uts)), (None, None));
}

fn destinations(spec: &Spec) -> Vec<String> {
    spec.mounts().iter().flatten().map(|mount| mount.destination().display().to_string()).collect()
}

fn options(spec: &Spec, destination: &str) -> Vec<String> {
    let mut mounts = spec.mounts().iter().flatten();
    let mount = mounts.find(|mount| mount.destination() == Path::new(destination)).unwrap();
    mount.options().clone().unwrap_or_default()
}

#[test]
fn volumes_win_over_managed_files_and_outer_mounts_come_first() {
    let world = changed(|world| {
        world.volumes = vec![
            bind("/v/deep", "/data/deep", true),
            bind("/v/data", "/data", false),
            bind("/v/hosts", "/etc/hosts/", false),
            bind("/v/mq", "/dev/mqueue", false),
        ];
    });
    let spec = world.spec();
    let want =
        ["/proc", "/dev", "/dev/pts", "/sys", "/sys/fs/cgroup", "/data", "/dev/shm", "/data/deep", "/etc/hosts/"];
    assert_eq!(destinations(&spec), [want.as_slice(), &["/dev/mqueue"]].concat());
    assert_eq!(options(&spec, "/data/deep"), ["rbind", "rprivate", "ro"]);
    assert_eq!(options(&spec, "/data"), ["rbind", "rprivate", "rw"]);
    assert!(options(&spec, "/sys").contains(&"ro".to_owned()));
    assert!(options(&spec, "/sys/fs/cgroup").contains(&"ro".to_owned()));
}

#[test]
fn the_working_directory_is_made_where_it_will_be_seen() {
    for (own, image, want_cwd, want_folder) in [
        (None, "", "/", None),
        (None, "srv", "/srv", Some(("/srv", None))),
        (Some("/a/b"), "/srv", "/a/b", Some(("/a/b", None))),
        (Some("/data/x/y"), "", "/data/x/y", Some(("/x/y", Some("/v/data")))),
        (Some("/data"), "", "/data", None),
        (Some("/ro/x"), "", "/ro/x", None),
    ] {
        let world = changed(|world| {
            world.container.working_dir = own.map(str::to_owned);
            world.working_dir = image;
            world.volumes = vec![bind("/v/data", "/data", false), bind("/v/ro", "/ro", true)];
        });
        let (spec, request) = world.build().unwrap();
        assert_eq!(spec.process().as_ref().unwrap().cwd(), Path::new(want_cwd));
        let got = request.folders.first().map(|folder| (folder.path.clone(), folder.base.clone()));
        let want = want_folder.map(|(path, base): (&str, Option<&str>)| (path.into(), base.map(Into::into)));
        assert_eq!(got, want, "{own:?} {image:?}");
    }
}

#[test]
fn privileged_or_not() {
    let plain = World::new().spec();
    let linux = plain.linux().as_ref().unwrap();
    for masked in ["/proc/kcore", "/sys/devices/system/cpu/cpu0/thermal_throttle"] {
        assert!(linux.masked_paths().as_ref().unwrap().contains(&masked.to_owned()), "{masked}");
    }
    assert!(linux.readonly_paths().as_ref().unwrap().contains(&"/proc/sys".to_owned()));
    let privileged = changed(|world| {
        world.container.security.privileged = true;
        world.seccomp_default = true;
    })
    .spec();
    let linux = privileged.linux().as_ref().unwrap();
    assert_eq!((linux.masked_paths().as_deref(), linux.readonly_paths().as_deref()), (Some(&[][..]), Some(&[][..])));
    assert!(linux.seccomp().is_none());
    assert!(!options(&privileged, "/sys").contains(&"ro".to_owned()));
    let rules = linux.resources().as_ref().unwrap().devices().clone().unwrap();
    assert!(devices::allow_everything(&devices::from_oci(&rules).unwrap()));
    let bounding = privileged.process().as_ref().unwrap().capabilities().clone().unwrap().bounding().clone();
    assert_eq!(bounding.unwrap().len(), capability::NAMES.len());
}

#[test]
fn device_rules_survive_the_spec() {
    let spec = World::new().spec();
    let rules = spec.linux().as_ref().unwrap().resources().as_ref().unwrap().devices().clone().unwrap();
    assert_eq!(devices::from_oci(&rules).unwrap(), devices::default_rules());
}

#[test]
fn filter_and_no_new_privs() {
    for (own, default, want) in [
        (None, false, false),
        (None, true, true),
        (Some(Seccomp::Unconfined), true, false),
        (Some(Seccomp::RuntimeDefault), false, true),
    ] {
        let world = changed(|world| {
            world.container.security.seccomp = own.clone();
            world.seccomp_default = default;
        });
        let (spec, request) = world.build().unwrap();
        let profile = spec.linux().as_ref().unwrap().seccomp().clone();
        assert_eq!((profile.is_some(), request.filter.is_some()), (want, want), "{own:?} {default}");
        assert_eq!(request.filter, profile.map(|profile| crate::runtime::seccomp::program(&profile).unwrap()));
        let mut lean = spec.clone();
        lean.linux_mut().as_mut().unwrap().set_seccomp(None);
        assert_eq!(*request.spec, lean, "the children's spec is the same but for the profile");
    }
    assert_eq!(World::new().process().no_new_privileges(), None, "absent, not false");
    let strict = changed(|world| world.container.security.no_new_privs = true);
    assert_eq!(strict.process().no_new_privileges(), Some(true));
}

#[test]
fn numbers() {
    let world = changed(|world| {
        world.limits = ContainerLimits {
            cpu_weight: 59,
            cpu_max: Some(CpuMax { quota: 50_000, period: 100_000 }),
            memory_max: Some(64 << 20),
            swap_max: Some(0),
            oom_group: true,
            oom_score_adj: -997,
            hugetlb: [("2Mi".to_owned(), 4 << 20), ("1Gi".to_owned(), 0)].into(),
        };
    });
    let spec = world.spec();
    assert_eq!(spec.process().as_ref().unwrap().oom_score_adj(), Some(-997));
    let resources = spec.linux().as_ref().unwrap().resources().clone().unwrap();
    let cpu = resources.cpu().clone().unwrap();
    assert_eq!((cpu.quota(), cpu.period(), cpu.shares()), (Some(50_000), Some(100_000), None));
    assert_eq!(resources.memory().unwrap().limit(), Some(64 << 20));
    let unified = resources.unified().clone().unwrap();
    for (file, value) in [("cpu.weight", "59"), ("memory.swap.max", "0"), ("memory.oom.group", "1")] {
        assert_eq!(unified.get(file).map(String::as_str), Some(value), "{file}");
    }
    let pages = resources.hugepage_limits().clone().unwrap();
    let pages: Vec<_> = pages.iter().map(|page| (page.page_size().as_str(), page.limit())).collect();
    assert_eq!(pages, [("1GB", 0), ("2MB", 4 << 20)]);
    assert_eq!(spec.linux().as_ref().unwrap().cgroups_path(), &Some("/kubepods/podu1/0123abcd".into()));
}

#[test]
fn unknown_capabilities_are_named() {
    let world = changed(|world| world.container.security.add_capabilities = texts(&["FLY"]));
    assert_eq!(world.build().unwrap_err().to_string(), r#"unknown capability "FLY""#);
}

#[test]
fn the_spec_reads_back_as_it_was() {
    let (spec, request) = changed(|world| world.seccomp_default = true).build().unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    assert!(!text.contains("noNewPrivileges"), "absent, not false");
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<CreateRequest>(&text).unwrap(), request);
}
