//! Help for people: examples at the end of each `--help`, completions for shells, and man pages.

use std::fmt::{self, Display};
use std::fs::create_dir_all;
use std::io;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

/// The examples of each command; the first of the command without a subcommand.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "brooklet append logs.brooklet doc/1 'first entry' 'second entry'",
            "brooklet read logs.brooklet doc/1",
            "brooklet list logs.brooklet doc/ --json",
            "brooklet demo",
        ],
    ),
    (
        "format",
        &["brooklet format /dev/nvme1n1", "brooklet format logs.brooklet --capacity 10G --ring-size 256M"],
    ),
    (
        "append",
        &[
            "brooklet append logs.brooklet doc/1 'first entry' 'second entry'",
            "seq 1000 | brooklet append logs.brooklet numbers",
            "brooklet append logs.brooklet images --file photo.jpg",
            "brooklet read logs.brooklet doc/1 --json | brooklet append copy.brooklet doc/1 --json",
        ],
    ),
    (
        "read",
        &[
            "brooklet read logs.brooklet doc/1",
            "brooklet read logs.brooklet doc/1 --reverse --limit 10",
            "brooklet read logs.brooklet doc/1 --follow",
            "brooklet read logs.brooklet images --from 0 --to 1 --raw > photo.jpg",
        ],
    ),
    (
        "trim",
        &[
            "brooklet trim logs.brooklet doc/1 --keep-last 100",
            "brooklet trim logs.brooklet doc/1 --before 42",
        ],
    ),
    ("truncate", &["brooklet truncate logs.brooklet raft/7 --from 1200"]),
    (
        "retain",
        &[
            "brooklet retain logs.brooklet doc/1 --entries 1000 --age 30d",
            "brooklet retain logs.brooklet doc/1 --none",
        ],
    ),
    ("delete", &["brooklet delete logs.brooklet doc/1"]),
    (
        "list",
        &[
            "brooklet list logs.brooklet",
            "brooklet list logs.brooklet doc/ --limit 20 --json",
            "brooklet list logs.brooklet --prefix doc/",
        ],
    ),
    (
        "export",
        &[
            "brooklet export logs.brooklet --prefix doc/ --to docs.ndjson",
            "brooklet export logs.brooklet --format codex --to logs.codex",
        ],
    ),
    (
        "import",
        &[
            "brooklet import logs.brooklet docs.ndjson --prefix doc/ --skip-existing",
            "brooklet import logs.brooklet users.csv --key-column id --payload-column profile",
        ],
    ),
    ("archive", &["brooklet archive logs.brooklet s3://bucket/logs --keep 30d"]),
    ("backups", &["brooklet backups s3://bucket/logs"]),
    (
        "restore",
        &[
            "brooklet restore s3://bucket/logs restored.brooklet",
            "brooklet restore s3://bucket/logs restored.brooklet --prefix doc/",
        ],
    ),
    (
        "space",
        &["brooklet space create logs.brooklet tenant-7 --age 7d", "brooklet space list logs.brooklet"],
    ),
    ("space list", &["brooklet space list logs.brooklet"]),
    ("space create", &["brooklet space create logs.brooklet tenant-7 --class deferred --age 7d"]),
    ("space set", &["brooklet space set logs.brooklet tenant-7 --age 30d --rule 'audit/*=none'"]),
    ("space dump", &["brooklet space dump logs.brooklet sessions"]),
    ("space remove", &["brooklet space remove logs.brooklet tenant-7"]),
    (
        "tags",
        &[
            "brooklet tags put logs.brooklet order-17 '{\"total\": 12}' --tag open --tag berlin",
            "brooklet tags find logs.brooklet open berlin",
        ],
    ),
    (
        "tags put",
        &[
            "brooklet tags put logs.brooklet order-17 '{\"total\": 12}' --tag open --tag berlin",
            "brooklet tags put logs.brooklet photo --file photo.jpg --tag berlin",
        ],
    ),
    (
        "tags get",
        &[
            "brooklet tags get logs.brooklet order-17",
            "brooklet tags get logs.brooklet photo --raw > photo.jpg",
        ],
    ),
    ("tags find", &["brooklet tags find logs.brooklet open berlin --limit 10"]),
    ("tags count", &["brooklet tags count logs.brooklet open"]),
    ("tags list", &["brooklet tags list logs.brooklet", "brooklet tags list logs.brooklet city="]),
    ("tags remove", &["brooklet tags remove logs.brooklet order-17"]),
    (
        "tags import",
        &["brooklet tags import logs.brooklet orders.ndjson --field status --field city --id-field id"],
    ),
    (
        "doc",
        &[
            "brooklet doc put docs.brooklet notes '{\"title\": \"Notes\"}'",
            "brooklet doc patch docs.brooklet notes '{\"stars\": 5}'",
            "brooklet doc rewind docs.brooklet notes 1",
        ],
    ),
    ("doc get", &["brooklet doc get docs.brooklet notes", "brooklet doc get docs.brooklet notes --at 3"]),
    ("doc put", &["brooklet doc put docs.brooklet notes '{\"title\": \"Notes\"}' --new"]),
    (
        "doc patch",
        &[
            "brooklet doc patch docs.brooklet notes '{\"stars\": 5}' --expect 1 --author Ada",
            "brooklet doc patch docs.brooklet notes '[{\"op\": \"remove\", \"path\": \"/stars\"}]'",
        ],
    ),
    ("doc rewind", &["brooklet doc rewind docs.brooklet notes 1"]),
    ("doc history", &["brooklet doc history docs.brooklet notes --reverse --limit 10"]),
    ("doc move", &["brooklet doc move docs.brooklet notes closed/"]),
    (
        "doc restore",
        &[
            "brooklet doc restore docs.brooklet notes s3://bucket/docs",
            "brooklet doc restore docs.brooklet notes s3://bucket/docs --at '2026-01-31 12:00:00 UTC'",
        ],
    ),
    ("doc delete", &["brooklet doc delete docs.brooklet notes"]),
    ("doc watch", &["brooklet doc watch docs.brooklet notes --since 3"]),
    ("doc changes", &["brooklet doc changes docs.brooklet notes 3 --merged"]),
    ("inspect", &["brooklet inspect logs.brooklet", "brooklet inspect logs.brooklet doc/1"]),
    ("top", &["brooklet top metrics.prom"]),
    ("check", &["brooklet check logs.brooklet"]),
    ("checkpoint", &["brooklet checkpoint logs.brooklet"]),
    ("compact", &["brooklet compact logs.brooklet"]),
    (
        "serve",
        &[
            "brooklet serve logs.brooklet",
            "brooklet serve logs.brooklet --replicate s3://bucket/logs",
            "brooklet serve logs.brooklet --replicate s3://bucket/logs --standby",
            "brooklet serve logs.brooklet --replicate nats://n1:4222,n2:4222/logs --backups s3://bucket/logs",
            "brooklet serve logs.brooklet --replicate s3://bucket/logs --read-replica",
            "brooklet serve a.brooklet --cluster s3://bucket/cluster --shard a --host host-1",
        ],
    ),
    (
        "cluster",
        &[
            "brooklet cluster init s3://bucket/cluster",
            "brooklet cluster add-shard s3://bucket/cluster a",
            "brooklet cluster status s3://bucket/cluster",
            "brooklet cluster move s3://bucket/cluster a host-2",
        ],
    ),
    ("cluster init", &["brooklet cluster init s3://bucket/cluster"]),
    ("cluster add-shard", &["brooklet cluster add-shard s3://bucket/cluster a"]),
    ("cluster assign", &["brooklet cluster assign s3://bucket/cluster tenant-7 a"]),
    ("cluster forget", &["brooklet cluster forget s3://bucket/cluster a host-1"]),
    ("cluster status", &["brooklet cluster status s3://bucket/cluster --json"]),
    (
        "cluster move",
        &[
            "brooklet cluster move s3://bucket/cluster a host-2",
            "brooklet cluster move s3://bucket/cluster a --cancel",
        ],
    ),
    (
        "cluster doctor",
        &[
            "brooklet cluster doctor s3://bucket/cluster",
            "brooklet cluster doctor s3://bucket/cluster --backups a=s3://other/backups",
        ],
    ),
    ("codex", &["brooklet codex build words.codex words.tsv", "brooklet codex scan words.codex --prefix a"]),
    (
        "codex build",
        &[
            "brooklet codex build words.codex words.tsv",
            "sort -R words.tsv | brooklet codex build words.codex",
        ],
    ),
    ("codex get", &["brooklet codex get words.codex ash"]),
    ("codex scan", &["brooklet codex scan words.codex --prefix a --limit 10"]),
    ("codex stat", &["brooklet codex stat words.codex"]),
    ("codex verify", &["brooklet codex verify words.codex"]),
    ("replay", &["brooklet replay trace.json.gz"]),
    ("bench", &["brooklet bench --dir /mnt/disk --rounds 3"]),
    ("bench wal", &["brooklet bench wal --dir /mnt/disk"]),
    ("bench scale", &["brooklet bench scale --logs 1e3,1e6 --plot scale.svg"]),
    ("bench codex", &["brooklet bench codex --dir /mnt/disk"]),
    ("bench import", &["brooklet bench import --dir /mnt/disk"]),
    ("bench memory", &["brooklet bench memory --dir /mnt/disk"]),
    ("bench tails", &["brooklet bench tails --dir /mnt/disk"]),
    ("bench spaces", &["brooklet bench spaces --dir /mnt/disk --spaces 1e4"]),
    ("bench documents", &["brooklet bench documents --dir /mnt/disk --seconds 600"]),
    ("bench archive", &["brooklet bench archive --dir /mnt/disk"]),
    ("probe", &["brooklet probe /mnt/disk"]),
    ("demo", &["brooklet demo", "brooklet demo --failover"]),
    ("soak", &["brooklet soak"]),
    ("completions", &["brooklet completions bash > ~/.local/share/bash-completion/completions/brooklet"]),
    ("man", &["brooklet man ~/.local/share/man/man1"]),
];

/// Arguments of `brooklet completions`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `brooklet man`.
#[derive(clap::Args)]
pub struct ManArgs {
    /// The folder of the pages; created if missing
    folder: PathBuf,
}

/// The folder of the man pages.
#[derive(Serialize)]
struct Pages {
    folder: String,
}

impl Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = PathBuf::from(&self.folder).join("brooklet.1");
        write!(f, "the pages are in {}: try `man -l {}`", self.folder, first.display())
    }
}

/// Adds the examples of this command and of the commands below it, at the end of each help. `path`
/// is the names of the command and of the commands above it, without `brooklet`.
pub fn with_examples(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let below = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |sub| with_examples(sub, &below));
    }
    let Some((_, examples)) = EXAMPLES.iter().find(|(of, _)| *of == path) else { return command };
    let lines: String = examples.iter().map(|line| format!("\n  {line}")).collect();
    let before = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(format!("{before}Examples:{lines}"))
}

/// Prints the completions for a shell.
pub fn completions(args: &CompletionsArgs, mut command: Command, out: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "brooklet", &mut script);
    out.script(&script)
}

/// Writes a man page for each command.
pub fn man(args: &ManArgs, command: Command, out: &mut Output) -> Result<(), Failure> {
    let folder = &args.folder;
    let written = create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written
        .map_err(|error: io::Error| Failure::io(format!("writing pages to {}", folder.display()))(error))?;
    out.put(&Pages { folder: folder.display().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a line as a shell does: words, quotes, and nothing behind a redirection.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                '>' if !quoted => break,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().expect("one from the start").push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn each_example_is_a_call_of_its_command() {
        let command = crate::command();
        command.clone().debug_assert();
        for (path, examples) in EXAMPLES {
            for call in examples.iter().flat_map(|line| line.split(" | ")) {
                let words = words(call);
                if words[0] == "brooklet" {
                    let called = command.clone().try_get_matches_from(&words);
                    assert!(called.is_ok(), "{call}: {}", called.unwrap_err());
                }
            }
            let of = format!("brooklet {path}");
            assert!(examples.iter().any(|line| line.contains(of.trim_end())), "{path}: {examples:?}");
        }
    }

    /// Calls `each` with every command that people see, built, and its path.
    fn walk(command: &mut Command, path: &str, each: &mut impl FnMut(&mut Command, &str)) {
        each(command, path);
        let visible = |sub: &&mut Command| !sub.is_hide_set() && sub.get_name() != "help";
        for sub in command.get_subcommands_mut().filter(visible) {
            let path = format!("{path} {}", sub.get_name());
            walk(sub, &path, each);
        }
    }

    #[test]
    fn each_help_ends_with_examples() {
        let mut command = crate::command();
        command.build();
        let (mut wrong, mut seen) = (Vec::new(), 0);
        walk(&mut command, "brooklet", &mut |command, path| {
            let help = command.render_long_help().to_string();
            let last = help.trim_end().rsplit("\n\n").next().unwrap_or_default();
            if !last.starts_with("Examples:\n  brooklet ") {
                wrong.push(path.to_owned());
            }
            seen += 1;
        });
        assert!(wrong.is_empty(), "no examples at the end of the help of {wrong:?}");
        assert_eq!(EXAMPLES.len(), seen, "examples of commands that do not exist");
    }

    #[test]
    fn each_prefix_is_an_argument_and_an_option() {
        let mut command = crate::command();
        command.build();
        let mut wrong = Vec::new();
        walk(&mut command, "brooklet", &mut |command, path| {
            let is_option = command.get_opts().any(|arg| arg.get_long() == Some("prefix"));
            // The arguments of `tags find` and `tags count` are tags.
            let argument = ["PREFIX", "TAGS"];
            let is_argument = command
                .get_positionals()
                .any(|arg| arg.get_value_names().is_some_and(|names| argument.contains(&names[0].as_str())));
            if is_option != is_argument {
                wrong.push(path.to_owned());
            }
        });
        assert!(wrong.is_empty(), "only one of PREFIX and --prefix: {wrong:?}");
    }
    #[test]
    fn each_time_takes_units() {
        let mut command = crate::command();
        command.build();
        let mut wrong = Vec::new();
        walk(&mut command, "brooklet", &mut |command, path| {
            let bare = ["SECONDS", "MINUTES", "MS", "MILLIS", "HOURS", "DAYS"];
            let names = command.get_arguments().filter_map(|arg| arg.get_value_names()).flatten();
            wrong.extend(
                names.filter(|name| bare.contains(&name.as_str())).map(|name| format!("{path} {name}")),
            );
        });
        assert!(wrong.is_empty(), "values in one unit: {wrong:?}");
    }
}
