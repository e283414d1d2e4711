//! HTTP probes against real servers, good and bad ones.

use super::ProbeResult::{self, Failure, Success, Warning};
use super::http::probe;
use super::url::Url;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// Far beyond what any try here takes.
const LONG: Duration = Duration::from_secs(20);

/// A server that gives these answers, one a connection, and tells what it was asked. After an answer it closes.
async fn serve(answers: &[&str]) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = mpsc::unbounded_channel();
    let answers: Vec<String> = answers.iter().map(|answer| answer.replace("PORT", &port.to_string())).collect();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            tell.send(head(&mut stream).await).unwrap();
            // A client that has heard enough closes before the end.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, asked)
}

/// Reads a request up to the empty line.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

async fn get(port: u16, path: &str) -> ProbeResult {
    probe(Url::new(false, "127.0.0.1", port, path), &[], LONG).await
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

#[tokio::test]
async fn the_status_decides() {
    let failure = |code: u16| Failure(format!("HTTP probe failed with statuscode: {code}"));
    let table = [
        (answer("200 OK", "", "fine"), Success("fine".to_owned())),
        (answer("299 Odd", "", ""), Success(String::new())),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end".to_owned(), Success("until the end".to_owned())),
        ("HTTP/1.1 100 Continue\r\n\r\n".to_owned() + &answer("204 No Content", "", ""), Success(String::new())),
        (answer("404 Not Found", "", "x"), failure(404)),
        (answer("500 Internal Server Error", "", "x"), failure(500)),
        (
            answer("302 Found", "", "no place"),
            Warning("Probe terminated redirects, Response body: no place".to_owned()),
        ),
        (answer("304 Not Modified", "", ""), Warning("Probe terminated redirects, Response body: ".to_owned())),
    ];
    for (answer, expected) in table {
        let (port, _asked) = serve(&[&answer]).await;
        assert_eq!(get(port, "/").await, expected, "{answer}");
    }
}

#[tokio::test]
async fn the_request_is_the_kubelets() {
    let (port, mut asked) = serve(&[&answer("200 OK", "", "")]).await;
    get(port, "/healthz?full=1").await;
    let request = asked.recv().await.unwrap().to_lowercase();
    let expected = ["get /healthz?full=1 http/1.1\r\n", "user-agent: kube-probe/1.36\r\n", "accept: */*\r\n"];
    for part in expected.into_iter().chain(["connection: close\r\n", &format!("host: 127.0.0.1:{port}\r\n")]) {
        assert!(request.contains(part), "{part} in {request}");
    }
    assert!(!request.contains("accept-encoding"), "{request}");

    let (port, mut asked) = serve(&[&answer("200 OK", "", "")]).await;
    let headers = [("Host", "example.com"), ("X-A", "1"), ("X-A", "2"), ("Accept", ""), ("User-Agent", "mine")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    probe(Url::new(false, "127.0.0.1", port, ""), &headers, LONG).await;
    let request = asked.recv().await.unwrap().to_lowercase();
    for part in ["get / http/1.1\r\n", "host: example.com\r\n", "x-a: 1\r\n", "x-a: 2\r\n", "user-agent: mine\r\n"] {
        assert!(request.contains(part), "{part} in {request}");
    }
    assert!(!request.contains("accept:"), "{request}");
    assert_eq!(request.matches("host:").count(), 1);
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_a_failure() {
    for (name, value) in [("bad name", "x"), ("X", "a\r\nb"), ("", "x")] {
        let headers = [(name.to_owned(), value.to_owned())];
        let result = probe(Url::new(false, "127.0.0.1", 1, "/"), &headers, LONG).await;
        let Failure(text) = result else { panic!("{result:?}") };
        assert!(text.contains("net/http: invalid header field"), "{text}");
    }
}

#[tokio::test]
async fn redirects_stay_within_the_host() {
    let found = |location: &str| answer("302 Found", &format!("Location: {location}\r\n"), "moved");
    let (port, mut asked) =
        serve(&[&found("/next"), &found("http://127.0.0.1:PORT/last"), &answer("200 OK", "", "here")]).await;
    let headers = [("Host".to_owned(), "example.com".to_owned())];
    let result = probe(Url::new(false, "127.0.0.1", port, "/"), &headers, LONG).await;
    assert_eq!(result, Success("here".to_owned()));
    let hosts = ["host: example.com", "host: example.com", &format!("host: 127.0.0.1:{port}")];
    for (host, path) in hosts.into_iter().zip(["/ ", "/next ", "/last "]) {
        let request = asked.recv().await.unwrap().to_lowercase();
        assert!(request.contains(host) && request.starts_with(&format!("get {path}")), "{host} {path} in {request}");
    }

    for elsewhere in ["http://example.com/", "//localhost/", "https://127.0.0.2/"] {
        let (port, _asked) = serve(&[&found(elsewhere)]).await;
        let warning = Warning("Probe terminated redirects, Response body: moved".to_owned());
        assert_eq!(get(port, "/").await, warning, "{elsewhere}");
    }
}

#[tokio::test]
async fn redirects_come_to_an_end() {
    let again = answer("307 Temporary Redirect", "Location: /again\r\n", "");
    let (port, _asked) = serve(&vec![again.as_str(); 20]).await;
    let expected = format!("Get \"http://127.0.0.1:{port}/again\": stopped after 10 redirects");
    assert_eq!(get(port, "/").await, Failure(expected));
    let (port, _asked) = serve(&[&answer("301 Moved", "Location: http://127.0.0.1:PORT:x/\r\n", "")]).await;
    let Failure(text) = get(port, "/").await else { panic!() };
    assert!(text.contains("failed to parse Location header"), "{text}");
}

#[tokio::test]
async fn only_the_beginning_of_a_body_is_kept() {
    let endless =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", "8000\r\n".to_owned() + &"x".repeat(0x8000));
    let (port, _asked) = serve(&[&endless]).await;
    assert_eq!(get(port, "/").await, Success("x".repeat(10 * 1024)));
}

#[tokio::test]
async fn bad_servers_are_failures_in_time() {
    let table = [
        (String::new(), "EOF"),
        ("HTTP/1.1 200 OK\r\n".to_owned(), "EOF"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_owned(), "EOF"),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "malformed HTTP response"),
        ("\u{0}\u{1}\u{2}\r\n\r\n".to_owned(), "malformed HTTP response"),
        ("HTTP/1.1 99999 Far\r\n\r\n".to_owned(), "malformed HTTP response"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)), "malformed HTTP response"),
        (format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(5000)), "malformed HTTP response"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(), ""),
    ];
    for (answer, why) in table {
        let shown = answer.chars().take(60).collect::<String>();
        let (port, _asked) = serve(&[&answer]).await;
        let result = get(port, "/").await;
        let Failure(text) = result else { panic!("{shown}: {result:?}") };
        assert!(
            text.starts_with(&format!("Get \"http://127.0.0.1:{port}/\": ")) && text.contains(why),
            "{shown}: {text}"
        );
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let expected = format!(
        "Get \"http://127.0.0.1:{port}/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    );
    let short = Duration::from_millis(100);
    let result = probe(Url::new(false, "127.0.0.1", port, "/"), &[], short).await;
    assert_eq!(result, Failure(expected.clone()));
    // Neither does a drip of a body keep it alive, and its connection is closed.
    let drip = tokio::spawn(async move {
        let (_first, _) = listener.accept().await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx").await.unwrap();
        stream.read(&mut [0; 16]).await.unwrap_or(0)
    });
    let result = probe(Url::new(false, "127.0.0.1", port, "/"), &[], short).await;
    assert_eq!(result, Failure(expected));
    assert_eq!(tokio::time::timeout(LONG, drip).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_refused_or_reset_connection_is_told_in_gos_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let reset = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.set_zero_linger().unwrap();
    });
    let text = format!("Get \"http://127.0.0.1:{port}/\": ");
    assert_eq!(get(port, "/").await, Failure(format!("{text}connection reset by peer")));
    reset.await.unwrap();
    let refused = format!("{text}dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(get(port, "/").await, Failure(refused));
}

#[tokio::test]
async fn any_certificate_will_do() {
    let made = rcgen::generate_simple_self_signed(["not.this.host".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            head(&mut stream).await;
            stream.write_all(answer("200 OK", "", "secret").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    for host in ["127.0.0.1", "localhost"] {
        let result = probe(Url::new(true, host, port, "/"), &[], LONG).await;
        assert_eq!(result, Success("secret".to_owned()), "{host}");
    }
    // Plain HTTP spoken to a TLS server, and TLS to a plain one.
    assert!(matches!(get(port, "/").await, Failure(_)));
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _): (TcpStream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let Failure(text) = probe(Url::new(true, "127.0.0.1", port, "/"), &[], LONG).await else { panic!() };
    assert!(text.starts_with(&format!("Get \"https://127.0.0.1:{port}/\": tls: ")), "{text}");
}
