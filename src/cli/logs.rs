//! `armlet logs`.

use super::args::{Logs, Stream};
use super::client::{self, Client};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use http_body_util::BodyExt;

/// Runs the command.
pub(super) async fn run(args: &Logs, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let pods = client.pods().await?.value.items;
    let pod = lookup::pod(&pods, &args.pod, args.namespace.as_deref())?;
    let (container, others) = lookup::container(pod, args.container.as_deref())?;
    if let Some(others) = others {
        out.remark(&format!("Showing container {:?} of: {}", container.name, others.join(", ")));
    }
    let place = [&pod.metadata.namespace, &pod.metadata.name, &container.name].map(|part| client::escape(part));
    let path = format!("/containerLogs/{}?{}", place.join("/"), query(args));
    let mut body = client.stream(&path).await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| CliError::Talk { source })?;
        if let Ok(data) = frame.into_data() {
            out.bytes(&data)?;
        }
    }
    Ok(())
}

fn query(args: &Logs) -> String {
    let flag = |name, set: bool| set.then(|| (name, "true".to_owned()));
    let number = |name, value: Option<u64>| value.map(|v| (name, v.to_string()));
    let stream = args.stream.map(|stream| match stream {
        Stream::Stdout => "Stdout",
        Stream::Stderr => "Stderr",
    });
    let pairs: Vec<(&str, String)> = [
        flag("follow", args.follow),
        flag("previous", args.previous),
        flag("timestamps", args.timestamps),
        number("tailLines", args.tail),
        number("limitBytes", args.limit_bytes),
        number("sinceSeconds", args.since),
        args.since_time.clone().map(|v| ("sinceTime", v)),
        stream.map(|v| ("stream", v.to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect();
    client::query(pairs.iter().map(|(n, v)| (*n, v.as_str())))
}
