//! As much of a redis client as a demonstration needs.

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects and waits until the server answers: QEMU takes the connection before anyone in the guest listens.
    pub(crate) fn connect(port: u16, limit: Duration) -> Result<Self> {
        let start = Instant::now();
        loop {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let client = Self { stream };
            match client.call(&["PING"]) {
                Ok(_) => return Ok(client),
                Err(error) if start.elapsed() > limit => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Sends one command and gives its answer in words.
    pub(crate) fn call(&self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        (&self.stream).write_all(request.as_bytes())?;
        let mut reader = BufReader::new(&self.stream);
        let line = read_line(&mut reader)?;
        // A string is announced by its length and follows on a line of its own; the rest is one line.
        match line.strip_prefix('$') {
            Some("-1") => Ok("(nil)".to_owned()),
            Some(_) => read_line(&mut reader),
            None => Ok(line.trim_start_matches(['+', ':']).to_owned()),
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(Error::from(ErrorKind::UnexpectedEof));
    }
    Ok(line.trim_end().to_owned())
}
