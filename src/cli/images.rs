//! `armlet images`, `armlet import` and `armlet rmi`.

use super::args::{Format, Images, Import, ListFormat, Rmi};
use super::client::{self, Client, Lines};
use super::error::CliError;
use super::output::Out;
use super::table::Table;
use crate::model::api::{Image, ImportProgress, ImportRequest, Removed};
use hyper::Method;
use hyper::body::Bytes;

/// Runs `armlet images`.
pub(super) async fn list(args: &Images, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let images = client.get::<Vec<Image>>("/armlet/v1/images").await?.value;
    match args.output {
        Some(ListFormat::Json) => out.json(&images),
        Some(ListFormat::Yaml) => out.yaml(&images),
        wide => {
            if images.is_empty() {
                out.remark("No images. `armlet import` takes them from an archive.");
                return Ok(());
            }
            out.table(&table(&images, wide.is_some()))
        }
    }
}

/// Runs `armlet import`.
pub(super) async fn import(args: &Import, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let cannot =
        |source: Box<dyn std::error::Error + Send + Sync>| CliError::Archive { path: args.path.clone(), source };
    // The agent has its own working directory. It also follows no `..`: links are resolved here, as the user sees them.
    let path = std::fs::canonicalize(&args.path).map_err(|error| cannot(error.into()))?;
    let path = path.into_os_string().into_string().map_err(|_| cannot("its path is not UTF-8".into()))?;
    let body = client.post("/armlet/v1/images/import", &ImportRequest { path }).await?;
    let mut lines = Lines::new(body);
    loop {
        match lines.next::<ImportProgress>().await? {
            Some(ImportProgress::Step { text }) => out.remark(&text),
            Some(ImportProgress::Failed { message }) => return Err(CliError::Import { message }),
            Some(ImportProgress::Done { images }) => {
                return match args.output {
                    Some(Format::Json) => out.json(&images),
                    Some(Format::Yaml) => out.yaml(&images),
                    None => out.table(&table(&images, false)),
                };
            }
            None => return Err(CliError::CutOff),
        }
    }
}

/// Runs `armlet rmi`.
pub(super) async fn remove(args: &Rmi, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let mut queries: Vec<String> = args.images.iter().map(|name| client::query([("name", name.as_str())])).collect();
    if args.unused {
        queries.push("unused=true".to_owned());
    }
    let mut all = Removed::default();
    let mut refused = None;
    // One that cannot go does not keep the others.
    for query in queries {
        let path = format!("/armlet/v1/images?{query}");
        let answer = client.send_slow(client::request(Method::DELETE, &path, Bytes::new())?).await?;
        match client::document::<Removed>(&path, answer).await {
            Ok(Removed { names, images, bytes }) => {
                all.names.extend(names);
                all.images.extend(images);
                all.bytes = all.bytes.saturating_add(bytes);
            }
            Err(error @ CliError::Refused { .. }) => {
                if let Some(before) = refused.replace(error) {
                    out.remark(&before.report());
                }
            }
            Err(error) => return Err(error),
        }
    }
    match args.output {
        Some(Format::Json) => out.json(&all)?,
        Some(Format::Yaml) => out.yaml(&all)?,
        None => {
            for name in &all.names {
                out.line(&format!("removed {name}"))?;
            }
            if refused.is_none() || !all.names.is_empty() {
                out.remark(&format!("{} images removed, {} free again.", all.images.len(), size(all.bytes)));
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// One line for each name; the names of one image share its id.
fn table(images: &[Image], wide: bool) -> Table {
    let mut table = Table::new(["NAME", "ID", "ARCH", "SIZE"]);
    for image in images {
        let id = image.id.as_str();
        let id = if wide { id } else { id.get(..12).unwrap_or(id) };
        let unnamed = [String::new()];
        let names = if image.names.is_empty() { &unnamed[..] } else { &image.names };
        for name in names {
            table.row([name.as_str().into(), id.into(), image.architecture.as_str().into(), size(image.bytes).into()]);
        }
    }
    table
}

/// Bytes with three digits: `1.23 MB`, in powers of ten as registries and disks count.
pub(super) fn size(bytes: u64) -> String {
    let (mut unit, mut scale) = ("B", 1_u64);
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if bytes / scale < 1000 {
            break;
        }
        (unit, scale) = (next, scale * 1000);
    }
    let whole = bytes / scale;
    let hundredths = u128::from(bytes % scale) * 100 / u128::from(scale);
    match (scale, whole) {
        (1, _) => format!("{whole} B"),
        (_, 0..10) => format!("{whole}.{hundredths:02} {unit}"),
        (_, 10..100) => format!("{whole}.{} {unit}", hundredths / 10),
        _ => format!("{whole} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (12_345, "12.3 kB"),
            (999_999, "999 kB"),
            (1_234_567, "1.23 MB"),
            (2_000_000_000, "2.00 GB"),
            (u64::MAX, "18446 PB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn each_name_has_a_line() {
        let image = |names: &[&str]| Image {
            id: crate::model::ImageId::new("0123456789abcdef").unwrap(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            bytes: 5_000_000,
            architecture: "arm64".to_owned(),
        };
        assert_eq!(
            table(&[image(&["a:1", "b:2"]), image(&[])], false).render(false),
            "NAME   ID             ARCH    SIZE\na:1    0123456789ab   arm64   5.00 MB\n\
             b:2    0123456789ab   arm64   5.00 MB\n-      0123456789ab   arm64   5.00 MB\n"
        );
    }
}
