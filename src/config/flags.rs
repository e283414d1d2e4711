//! The flags of `armlet agent`, and the environment variables that stand in for them.
//!
//! A flag is read as the field that it sets would be, by the same table of fields: it takes the same values, and is
//! refused or remarked in the same words. All mistakes are reported together. A flag `--max-pods` may also be given as
//! `ARMLET_MAX_PODS`; the flag wins. Given more than once, the last one counts, and lists and maps add up.

use super::flag_table::{ALL, Does, Flag, Takes};
use super::{Config, Reserved, kubelet, node, read};
use crate::wire::problem::{Path, Problem, Severity};
use crate::wire::report::Report;
use crate::wire::schema::{self, Field};
use crate::wire::tree::{Data, Entry, Node};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;

/// Where the configuration is looked for when nobody says otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/armlet/config.yaml";
/// The folder of its drop-ins, likewise.
pub const DEFAULT_CONFIG_DIR: &str = "/etc/armlet/config.d";

/// The flags, as given: each name with its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args(BTreeMap<&'static str, Vec<String>>);

impl Args {
    /// The flag with this name, given once more. A name that is no flag's changes nothing.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if let Some(flag) = ALL.iter().find(|flag| flag.name == name) {
            self.0.entry(flag.name).or_default().push(value.to_owned());
        }
        self
    }

    /// The configuration file, and whether somebody asked for it: the default one may be absent.
    #[must_use]
    pub fn config_file(&self, env: &BTreeMap<String, String>) -> (String, bool) {
        self.place("config", env, DEFAULT_CONFIG)
    }

    /// The folder of drop-ins, likewise.
    #[must_use]
    pub fn config_dir(&self, env: &BTreeMap<String, String>) -> (String, bool) {
        self.place("config-dir", env, DEFAULT_CONFIG_DIR)
    }

    fn place(&self, name: &str, env: &BTreeMap<String, String>, default: &str) -> (String, bool) {
        let given = self.0.get(name).and_then(|texts| texts.last()).or_else(|| env.get(&variable(name)));
        given.map_or_else(|| (default.to_owned(), false), |path| (path.clone(), true))
    }
}

impl clap::FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in ALL {
            // Of a flag that a command line around this one has too, its default would be seen here.
            let given = matches.value_source(flag.name) == Some(ValueSource::CommandLine);
            if let Some(texts) = matches.get_many::<String>(flag.name).filter(|_| given) {
                self.0.insert(flag.name, texts.cloned().collect());
            }
        }
        Ok(())
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        ALL.iter().fold(command, |command, flag| command.arg(arg(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn arg(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).action(ArgAction::Append).help(flag.help).hide(flag.help.is_empty());
    let arg = if flag.alias.is_empty() { arg } else { arg.alias(flag.alias) };
    let arg = if flag.name == "v" { arg.short('v') } else { arg };
    match flag.takes {
        // As Go's flags: a value only behind an equals sign, and none means yes.
        Takes::Bool => arg.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg.value_name(flag.value).num_args(1).allow_hyphen_values(true),
    }
}

/// The variable that stands in for a flag.
fn variable(flag: &str) -> String {
    format!("ARMLET_{}", flag.to_uppercase().replace('-', "_"))
}

/// A flag that is given, or its variable.
struct Given<'a> {
    flag: &'static Flag,
    texts: &'a [String],
    /// Where: `command line` or `environment`.
    place: &'static str,
    /// What people wrote: `--flag` or the variable.
    by: String,
}

/// What is given, the environment first: what comes later wins.
fn given<'a>(args: &'a Args, env: &'a BTreeMap<String, String>) -> Vec<Given<'a>> {
    let of = |flag: &'static Flag| match args.0.get(flag.name) {
        Some(texts) => Some(Given { flag, texts, place: "command line", by: format!("--{}", flag.name) }),
        None => {
            let by = variable(flag.name);
            let text = env.get(&by)?;
            Some(Given { flag, texts: std::slice::from_ref(text), place: "environment", by })
        }
    };
    ALL.iter().filter_map(of).collect()
}

/// Puts flags and variables into the configuration, over what the files said.
pub(super) fn apply(args: &Args, env: &BTreeMap<String, String>, config: &mut Config, problems: &mut Vec<Problem>) {
    for given in given(args, env) {
        match given.flag.does {
            Does::Own => {}
            Does::Nothing(why) => problems.push(given.problem(schema::ignored(why), Severity::Warning)),
            Does::Field(path) => given.set(path, kubelet::FIELDS, kubelet::apply, config, problems),
            Does::Node(path) => given.set(path, node::FIELDS, node::apply, config, problems),
        }
    }
}

/// Which settings flags and variables set, and what sets each: the path of a field, or of one entry of it.
pub(super) fn origins(args: &Args, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    for given in given(args, env) {
        let (Does::Field(path) | Does::Node(path)) = given.flag.does else { continue };
        match given.flag.takes {
            Takes::Pairs(_) => {
                // What is not named of a reserve is nothing, by the same flag.
                let whole: &[&str] = if path.ends_with("Reserved") { &["cpu", "memory", "pid"] } else { &[] };
                let value = given.value();
                let named = value.iter().flat_map(Node::entries).map(|entry| entry.key.as_str());
                origins
                    .extend(named.chain(whole.iter().copied()).map(|key| (format!("{path}.{key}"), given.by.clone())));
            }
            _ => {
                origins.insert(path.to_owned(), given.by);
            }
        }
    }
    origins
}

impl Given<'_> {
    fn problem(&self, message: String, severity: Severity) -> Problem {
        let (file, field) = (self.place.to_owned(), self.by.clone());
        Problem { file, line: None, document: 0, field, message, severity }
    }

    /// Reads it as a document that has this one field.
    fn set(&self, path: &str, fields: &[Field], apply: super::Apply, config: &mut Config, problems: &mut Vec<Problem>) {
        let mut tree = match self.value() {
            Ok(value) => value,
            Err(message) => return problems.push(self.problem(message, Severity::Error)),
        };
        for name in path.rsplit('.') {
            let entry = Entry { key: name.to_owned(), line: 1, value: tree };
            tree = Node { line: 1, data: Data::Map(vec![entry]) };
        }
        // A map on the command line is the whole of it, as upstream.
        match path {
            "systemReserved" => config.system_reserved = Reserved::default(),
            "kubeReserved" => config.kube_reserved = Reserved::default(),
            _ => {}
        }
        let mut report = Report::new(self.place, 0, &tree, Path::root());
        let values = schema::object(&tree, fields, &Path::root(), &mut report);
        report.seal();
        apply(&values, config, &mut report);
        for problem in report.into_problems() {
            // The flag instead of the field, and which entry of a map.
            let entry = problem.field.strip_prefix(path).filter(|_| matches!(self.flag.takes, Takes::Pairs(_)));
            let field = format!("{}{}", self.by, entry.unwrap_or_default());
            problems.push(Problem { line: None, field, ..problem });
        }
    }

    /// The value as a document would hold it.
    fn value(&self) -> Result<Node, String> {
        let last = self.texts.last().map_or("", String::as_str);
        let invalid = |why: String| format!("Invalid value: {last:?}: {why}");
        let items =
            || self.texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty());
        let node = |data| Node { line: 1, data };
        let text = |text: &str| node(Data::Text(text.to_owned()));
        Ok(match self.flag.takes {
            Takes::Text => text(last),
            Takes::Bool => node(Data::Bool(read::boolean(last).map_err(invalid)?)),
            Takes::Number => node(Data::Number(read::integer(last, i64::MIN, i64::MAX).map_err(invalid)?.into())),
            Takes::List => node(Data::List(items().map(text).collect())),
            Takes::Pairs(sign) => {
                let mut entries: Vec<Entry> = Vec::new();
                for item in items() {
                    let (key, value) = item.split_once(sign).ok_or_else(|| {
                        format!("Invalid value: {item:?}: must be KEY{sign}VALUE, with commas between")
                    })?;
                    entries.retain(|entry| entry.key != key.trim());
                    entries.push(Entry { key: key.trim().to_owned(), line: 1, value: text(value.trim()) });
                }
                node(Data::Map(entries))
            }
        })
    }
}
