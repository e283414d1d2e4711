//! `armlet logs`.

use super::args::{Logs, Stream};
use super::client::{self, Client};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use http_body_util::BodyExt;

/// Runs the command.
pub(super) async fn run(args: &Logs, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let Some(name) = &args.pod else { return copy(&format!("/armlet/v1/log?{}", query(args)), client, out).await };
    let pods = client.pods().await?.value.items;
    let pod = lookup::pod(&pods, name, args.namespace.as_deref())?;
    let (container, others) = lookup::container(pod, args.container.as_deref())?;
    if let Some(others) = others {
        out.remark(&format!("Showing container {:?} of: {}", container.name, others.join(", ")));
    }
    let place = [&pod.metadata.namespace, &pod.metadata.name, &container.name].map(|part| client::escape(part));
    copy(&format!("/containerLogs/{}?{}", place.join("/"), query(args)), client, out).await
}

async fn copy(path: &str, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let mut body = client.stream(path).await?;
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
    // The API's numbers have a sign: more than it can say is as good as the most it can say.
    let most = i64::MAX.unsigned_abs();
    let number = |name, value: Option<u64>| value.map(|v| (name, v.min(most).to_string()));
    let stream = args.stream.map(|stream| match stream {
        Stream::Stdout => "Stdout",
        Stream::Stderr => "Stderr",
    });
    let pairs: Vec<(&str, String)> = [
        flag("follow", args.follow),
        flag("previous", args.previous),
        flag("timestamps", args.timestamps),
        number("tailLines", args.tail.and_then(|lines| u64::try_from(lines).ok())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn what_is_asked_for_can_be_said() {
        for (line, want) in [
            ("logs web", ""),
            ("logs --node -f --tail 3", "follow=true&tailLines=3"),
            ("logs web --tail -1", ""),
            ("logs web --tail 0", "tailLines=0"),
            ("logs web --tail 99999999999999999999", "tailLines=9223372036854775807"),
            ("logs web --since 18446744073709551615", "sinceSeconds=9223372036854775807"),
            ("logs web --limit-bytes 18446744073709551615", "limitBytes=9223372036854775807"),
        ] {
            let cli = Cli::try_parse_from(["armlet"].into_iter().chain(line.split(' '))).unwrap();
            let Command::Logs(args) = cli.command else { panic!("{line}") };
            assert_eq!(query(&args), want, "{line}");
        }
    }
}
