#!/usr/bin/env bash
# check.sh: formatting, lints of Rust and of scripts, licences and sources of dependencies. check.sh tools: only installs what that needs.
. "$(dirname "$0")/../cross/lib.sh"
deny_version=0.19.0

install_packages shellcheck
# cargo keeps it in its own folder, so it is built once for a machine.
[ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $deny_version" ] || {
    say "installing cargo-deny $deny_version (some minutes, once for a machine)"
    # Its checks take a second either way; optimising it takes minutes.
    cargo install --locked --debug "cargo-deny@$deny_version"
}
[ "${1:-}" != tools ] || exit 0

cd "$ROOT"
say "cargo fmt"
cargo fmt --all --check
say "cargo clippy"
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
# Left out of "all" targets, since it is no part of plain `cargo test`.
cargo clippy --quiet --test qemu --locked -- -D warnings
say "shellcheck"
mapfile -t scripts < <(git ls-files '*.sh' .ci/run 'cross/deb/p*')
shellcheck -x "${scripts[@]}"
say "cargo deny"
deny() { cargo deny --locked --workspace "$@"; }
deny check --config .cargo/deny.toml --hide-inclusion-graph licenses bans sources
# The database of advisories is a git repository of its own, which not every machine reaches.
if deny fetch --config .cargo/deny.toml db >"$TARGET/deny-fetch.log" 2>&1; then
    deny check --config .cargo/deny.toml --disable-fetch advisories
else
    say "advisories: not checked, their database cannot be reached"
fi
say "checked"
