#!/usr/bin/env bash
# licences.sh: collects the licence texts of all that is linked into the released binary into one file and prints its path.
# They come from where the code comes from: each crate's own files, the Rust toolchain, libseccomp's source, Debian's musl.
. "$(dirname "$0")/lib.sh"
"$ROOT/cross/tools.sh"
hold_lock
out=$TARGET/licences/$ARMLET_ARCH
want=$(cat "$0" "$ROOT"/{LICENSE,NOTICE,Cargo.lock,Cargo.toml,rust-toolchain.toml,cross/debian.pins} | sha256sum)
if [ -e "$out/LICENCES" ] && [ "$(cat "$out/made-from" 2>/dev/null)" = "$want" ]; then
    echo "$out/LICENCES"
    exit
fi
part=$(mktemp -d "$TARGET/licences.XXXXXX")
trap 'rm -rf "$part"' EXIT

heading() { printf '\n%s\n%s\n\n' "$1" "$(printf '=%.0s' $(seq 1 ${#1}))"; }

# crates: a line for each crate that the binary links: name, version, licence, folder.
crates() {
    cargo metadata --locked --format-version 1 --filter-platform "$TRIPLE" --manifest-path "$ROOT/Cargo.toml" | python3 -c '
import json, os, sys
data = json.load(sys.stdin)
packages = {p["id"]: p for p in data["packages"]}
nodes = {n["id"]: n for n in data["resolve"]["nodes"]}
root = data["resolve"]["root"]
seen, queue = {root}, [root]
while queue:
    for dep in nodes[queue.pop()]["deps"]:
        # Neither what only tests use nor what only runs while armlet is built.
        if any(kind["kind"] is None for kind in dep["dep_kinds"]) and dep["pkg"] not in seen:
            seen.add(dep["pkg"])
            queue.append(dep["pkg"])
for package in sorted((packages[i] for i in seen - {root}), key=lambda p: (p["name"], p["version"])):
    is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
    if not is_macro:
        print(package["name"], package["version"], (package["license"] or "-").replace(" ", "_"),
              os.path.dirname(package["manifest_path"]), sep="\t")'
}

# texts FOLDER: the files of a folder that hold licences.
texts() { find "$1" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'copyright*' -o -iname 'notice*' -o -iname 'unlicense*' \) | sort; }

{
    printf 'armlet and what is linked into its binary: licences and notices\n'
    heading "armlet (Apache-2.0)"
    cat "$ROOT/LICENSE" "$ROOT/NOTICE"
    heading "libseccomp (LGPL-2.1)"
    cat "$TOOLS/libseccomp-$TRIPLE/LICENSE"
    heading "musl (MIT)"
    dpkg --fsys-tarfile "$(debian_fetch arm64 musl)" | tar -xO ./usr/share/doc/musl/copyright
    heading "The Rust standard library (MIT or Apache-2.0)"
    rust=$(cd "$ROOT" && rustc --print sysroot)/share/doc/rust
    # Pages that name every part of it, with the texts.
    python3 -c '
import html, re, sys
text = re.sub(r"(?s)<(style|script).*?</\1>", "", open(sys.argv[1], encoding="utf-8").read())
print(re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", text))))' "$rust/COPYRIGHT-library.html"
} >"$part/LICENCES"

bare=()
while IFS=$'\t' read -r name version licence folder; do
    mapfile -t files < <(texts "$folder")
    heading "$name $version (${licence//_/ })"
    # Texts that many crates share word by word are given once.
    if [ ${#files[@]} = 0 ]; then
        bare+=("$name $version: ${licence//_/ }")
        printf 'This crate comes without a text of its licence.\n'
    fi
    for file in "${files[@]}"; do
        sum=$(sha256_of "$file")
        if [ -e "$part/$sum" ]; then
            printf '%s: the same as of %s\n' "$(basename "$file")" "$(cat "$part/$sum")"
        else
            echo "$name $version" >"$part/$sum"
            printf -- '--- %s\n' "$(basename "$file")"
            cat "$file"
        fi
    done
done < <(crates) >>"$part/LICENCES"
[ "$(grep -c ' comes without a text' "$part/LICENCES")" -lt 40 ] || die "most crates have no licence text: is the registry's source here?"
if [ ${#bare[@]} -gt 0 ]; then say "without a text of their own: ${bare[*]/%/;}"; fi

mkdir -p "$out"
mv "$part/LICENCES" "$out/LICENCES"
echo "$want" >"$out/made-from"
echo "$out/LICENCES"
