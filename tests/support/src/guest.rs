//! One running guest.

use crate::shell::{Output, Shell};
use crate::{Arch, Disk, Error, Initramfs, Kind, root};
use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How to boot a guest.
#[derive(Debug, Clone)]
pub struct Boot {
    initramfs: Initramfs,
    directory: PathBuf,
    append: Vec<String>,
    ports: Vec<u16>,
    data: Option<Disk>,
    payload: Option<Disk>,
    memory: u32,
}

impl Boot {
    /// A guest whose sockets and logs lie in `directory`: one guest at a time for one folder.
    pub fn new(initramfs: &Initramfs, directory: &Path) -> Self {
        Self {
            initramfs: initramfs.clone(),
            directory: directory.to_owned(),
            append: Vec::new(),
            ports: Vec::new(),
            data: None,
            payload: None,
            memory: 1024,
        }
    }

    /// One more argument for the kernel, or for armlet, which reads those that begin with `armlet.`.
    #[must_use]
    pub fn append(mut self, argument: impl Into<String>) -> Self {
        self.append.push(argument.into());
        self
    }

    /// Makes a TCP port of the guest reachable from the host; see [`Guest::port`].
    #[must_use]
    pub fn forward(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// The disk that keeps the node's data.
    #[must_use]
    pub fn data(mut self, disk: &Disk) -> Self {
        self.data = Some(disk.clone());
        self
    }

    /// A disk that the guest sees read-only at `/run/payload`.
    #[must_use]
    pub fn payload(mut self, disk: &Disk) -> Self {
        self.payload = Some(disk.clone());
        self
    }

    /// Memory in MiB.
    #[must_use]
    pub fn memory(mut self, mebibytes: u32) -> Self {
        self.memory = mebibytes;
        self
    }

    /// Starts QEMU and, where the guest has a shell, waits until it answers.
    ///
    /// # Errors
    /// When QEMU does not start or the guest does not come up; the console's last lines are then on the terminal.
    pub fn start(&self) -> Result<Guest, Error> {
        std::fs::create_dir_all(&self.directory).map_err(|source| Error::Io {
            operation: "create",
            path: self.directory.clone(),
            source,
        })?;
        let script = root().join("tests/vm/boot.sh");
        let mut command = Command::new(&script);
        let forward: Vec<_> = self.ports.iter().map(|port| format!("tcp:127.0.0.1:0-:{port}")).collect();
        let mut append = self.append.join(" ");
        append.push_str(if self.initramfs.kind == Kind::Debug { " quiet rdinit=/debug" } else { " quiet" });
        command
            .env("VM_DIR", &self.directory)
            .env("INITRAMFS", &self.initramfs.path)
            .env("MEMORY", self.memory.to_string())
            .env("APPEND", append)
            .env("HOSTFWD", forward.join(" "))
            .stdin(Stdio::null());
        if let Some(disk) = &self.data {
            command.env("DATA", &disk.path);
        }
        if let Some(disk) = &self.payload {
            command.env("PAYLOAD", &disk.path);
        }
        let child = spawn_for_good(command).map_err(|source| Error::Run { program: script, source })?;
        let mut guest = Guest { child, directory: self.directory.clone(), shell: None };
        guest.wait_for_sockets()?;
        if self.initramfs.kind != Kind::Node {
            guest.shell = Some(Shell::connect(&self.directory.join("shell.sock"))?);
            if let Err(error) = guest.run("true", Duration::from_secs(90)) {
                guest.print_console();
                return Err(error);
            }
        }
        Ok(guest)
    }
}

fn qemu() -> PathBuf {
    format!("qemu-system-{}", Arch::current().name()).into()
}

/// Spawns from a thread that lives as long as this process: QEMU is told to die with the thread that started it.
fn spawn_for_good(mut command: Command) -> std::io::Result<Child> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is there until it has its answer.
        let _ = sender.send(command.spawn());
        loop {
            std::thread::park();
        }
    });
    receiver.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()))
}

/// A guest that runs until this value is dropped.
pub struct Guest {
    child: Child,
    directory: PathBuf,
    shell: Option<Shell>,
}

impl Guest {
    /// Runs a script in the guest with busybox's `sh`, killed there after `limit`.
    ///
    /// # Errors
    /// When the guest is gone or hangs; a script that fails is an [`Output`].
    pub fn run(&self, script: &str, limit: Duration) -> Result<Output, Error> {
        self.shell.as_ref().ok_or(Error::Gone)?.run(script, limit)
    }

    /// Runs a script that must succeed within a minute and gives its standard output.
    ///
    /// # Panics
    /// When it fails: with the script and all it wrote.
    #[track_caller]
    pub fn ok(&self, script: &str) -> String {
        match self.run(script, Duration::from_secs(60)) {
            Ok(output) if output.success() => output.stdout,
            other => panic!("in the guest: {script}\n{other:#?}\n{}", self.console_tail()),
        }
    }

    /// Waits in the guest until a condition, a script, succeeds.
    ///
    /// # Panics
    /// When it does not within `limit`: with what the condition wrote last.
    #[track_caller]
    pub fn wait_until(&self, condition: &str, limit: Duration) {
        let script = format!("until ( {condition} ) >/tmp/.w$$ 2>&1; do usleep 100000; done; rm -f /tmp/.w$$");
        match self.run(&script, limit) {
            Ok(output) if output.success() => {}
            _ => {
                let last = self.run(condition, Duration::from_secs(30));
                panic!("in the guest, not true within {limit:?}: {condition}\n{last:#?}\n{}", self.console_tail())
            }
        }
    }

    /// Writes a file in the guest: beside its place, then renamed, so that whoever watches the folder sees it whole.
    ///
    /// # Panics
    /// When the guest cannot write it.
    #[track_caller]
    pub fn write_file(&self, path: &str, contents: &[u8]) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(contents);
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        let part = format!("{folder}/.{name}.part");
        self.ok(&format!("mkdir -p '{folder}' && echo {encoded} | base64 -d >'{part}' && mv '{part}' '{path}'"));
    }

    /// The port of the host, on 127.0.0.1, that leads to this port of the guest, which [`Boot::forward`] asked for.
    ///
    /// # Errors
    /// When QEMU does not know of it.
    pub fn port(&self, guest: u16) -> Result<u16, Error> {
        let answer =
            self.qmp(&json!({"execute": "human-monitor-command", "arguments": {"command-line": "info usernet"}}))?;
        let table = answer.as_str().unwrap_or_default();
        // Protocol[state] fd, source address and port, destination address and port, two queue lengths.
        table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.first() == Some(&"TCP[HOST_FORWARD]") && row.get(5) == Some(&guest.to_string().as_str()))
            .and_then(|row| row.get(3)?.parse().ok())
            .ok_or_else(|| Error::Protocol(table.to_owned()))
    }

    /// Sends one QMP command and gives what it returned.
    ///
    /// # Errors
    /// When QEMU is gone or refuses the command.
    pub fn qmp(&self, command: &Value) -> Result<Value, Error> {
        let path = self.directory.join("qmp.sock");
        let error = |source| Error::Io { operation: "speak QMP on", path: path.clone(), source };
        let mut stream = UnixStream::connect(&path).map_err(error)?;
        let reader = BufReader::new(stream.try_clone().map_err(error)?);
        write!(stream, "{}{command}", json!({"execute": "qmp_capabilities"})).map_err(error)?;
        // Greeting, events and the answer to the first command come before the one that was asked for.
        let mut returns = 0;
        for line in reader.lines() {
            let line = line.map_err(error)?;
            let answer: Value = serde_json::from_str(&line).map_err(|_| Error::Protocol(line.clone()))?;
            if answer.get("error").is_some() {
                return Err(Error::Protocol(line));
            }
            if let Some(value) = answer.get("return") {
                returns += 1;
                if returns == 2 {
                    return Ok(value.clone());
                }
            }
        }
        Err(Error::Gone)
    }

    /// Sends process 1 a signal that ends the node: `USR2`, `PWR`.
    ///
    /// # Errors
    /// When the guest hangs. That it is gone before the shell has answered is what was asked for.
    pub fn end_node(&self, signal: &str) -> Result<(), Error> {
        match self.run(&format!("kill -{signal} 1"), Duration::from_secs(20)) {
            Ok(_) | Err(Error::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cuts the power: what the guest has not written to its disk is lost.
    pub fn power_cut(mut self) {
        self.end();
    }

    /// Waits until the guest has powered off by itself.
    ///
    /// # Errors
    /// [`Error::Timeout`] when it has not within `limit`; it is then killed.
    pub fn wait_off(mut self, limit: Duration) -> Result<ExitStatus, Error> {
        // The system has no wait with a limit for children by file descriptor here: the QMP socket ends with QEMU.
        let path = self.directory.join("qmp.sock");
        if let Ok(stream) = UnixStream::connect(&path) {
            let error = |source| Error::Io { operation: "watch", path: path.clone(), source };
            stream.set_read_timeout(Some(limit)).map_err(error)?;
            for line in BufReader::new(stream).lines() {
                match line {
                    Ok(_) => {}
                    Err(source) if source.kind() == std::io::ErrorKind::WouldBlock => {
                        return Err(Error::Timeout(limit));
                    }
                    Err(_) => break,
                }
            }
        }
        self.child.wait().map_err(|source| Error::Run { program: qemu(), source })
    }

    /// All that the kernel and process 1 have written to the console.
    pub fn console(&self) -> String {
        std::fs::read(self.directory.join("console.log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn console_tail(&self) -> String {
        let console = self.console();
        let lines: Vec<_> = console.lines().collect();
        format!("console:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
    }

    #[expect(clippy::print_stderr, reason = "the reader of a failed test needs the console")]
    fn print_console(&self) {
        eprintln!("{}", self.console_tail());
    }

    /// QEMU makes its sockets before the guest runs, all within a moment of its start.
    fn wait_for_sockets(&mut self) -> Result<(), Error> {
        let limit = Duration::from_secs(10);
        for _ in 0..limit.as_millis() / 10 {
            if UnixStream::connect(self.directory.join("qmp.sock")).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::Failed { program: qemu(), status });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Error::Timeout(limit))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}
