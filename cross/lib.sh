# Shared by the build and test scripts: what a machine needs, and how pinned packages are fetched. Source it, do not run it.
# shellcheck shell=bash

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything that is downloaded or built stays below here, where cargo builds too; `make clean` removes it whole.
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
case $TARGET in /*) ;; *) TARGET=$ROOT/$TARGET ;; esac
mkdir -p "$TARGET"
TOOLS=$TARGET/tools
# zig keeps what it compiles here, not in the home directory.
export ZIG_GLOBAL_CACHE_DIR=$TOOLS/zig-cache CARGO_ZIGBUILD_CACHE_DIR=$TOOLS/zigbuild
DEBIAN=$TARGET/debian
DEBIAN_SUITE=trixie

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What is built for, and what the guests are: aarch64 unless ARMLET_ARCH says x86_64. Debian has names of its own for both.
# What is made for guests lies in VM and IMAGES; tests/support/src/image.rs knows the same places.
ARMLET_ARCH=${ARMLET_ARCH:-aarch64}
# shellcheck disable=SC2034 # read by who sources this
case $ARMLET_ARCH in
    aarch64) DEBIAN_ARCH=arm64 VM=$TARGET/vm IMAGES=$TARGET/images ;;
    x86_64) DEBIAN_ARCH=amd64 VM=$TARGET/vm-x86_64 IMAGES=$TARGET/images-x86_64 ;;
    *) die "ARMLET_ARCH is '$ARMLET_ARCH'; armlet is built for aarch64 and x86_64" ;;
esac
# shellcheck disable=SC2034 # read by who sources this
TRIPLE=$ARMLET_ARCH-unknown-linux-musl ZIG_TARGET=$ARMLET_ARCH-linux-musl
export ARMLET_ARCH

# hold_lock: waits until no other script of this checkout makes or downloads something, and keeps others out until this
# shell ends. Tests run side by side and each calls the scripts it needs. Scripts called from here are not locked out.
hold_lock() {
    [ "${ARMLET_LOCK:-}" != "$TARGET" ] || return 0
    exec 9>"$TARGET/scripts.lock"
    flock 9
    export ARMLET_LOCK=$TARGET
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "need root or sudo for: $*"; fi
}

# install_packages NAME...: installs those of the machine's own packages that are missing.
install_packages() (
    hold_lock
    command -v apt-get >/dev/null || die "this script installs packages with apt; install by hand: $*"
    local name missing=()
    for name; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    local log=$TARGET/apt-install.log
    {
        as_root apt-get -qq update || say "apt-get update failed; going on with the lists that are here"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -oDPkg::Lock::Timeout=600 --no-install-recommends \
            install "${missing[@]}"
    } >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "apt-get install failed"; }
)

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# The mirror this machine already uses for the Debian archive named $1, or Debian's own.
debian_mirror() {
    local uri
    # shellcheck disable=SC2016 # apt expands the variables
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -E "/$1/?\$" | head -n1 || true)
    echo "${uri:-http://deb.debian.org/$1}"
}

# debian_apt ARCH COMMAND...: apt of a Debian of that architecture, with its own lists: the machine's apt stays untouched.
debian_apt() {
    local arch=$1 command=$2; shift 2
    local dir=$DEBIAN/$DEBIAN_SUITE-$arch
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/parts"
    if [ ! -e "$dir/sources.list" ]; then
        local main security
        main=$(debian_mirror debian) security=$(debian_mirror debian-security)
        : >"$dir/status"
        {
            echo "deb [signed-by=$keyring] $main $DEBIAN_SUITE main"
            case $DEBIAN_SUITE in
                *-backports) ;;
                *)
                    echo "deb [signed-by=$keyring] $main $DEBIAN_SUITE-updates main"
                    echo "deb [signed-by=$keyring] $security $DEBIAN_SUITE-security main"
                    echo "deb-src [signed-by=$keyring] $main $DEBIAN_SUITE main"
                    ;;
            esac
        } >"$dir/sources.list"
    fi
    "$command" -q -oAPT::Architecture="$arch" -oAPT::Architectures="$arch" -oAPT::Sandbox::User=root \
        -oDir::Etc::sourcelist="$dir/sources.list" -oDir::Etc::sourceparts="$dir/parts" \
        -oDir::State::Lists="$dir/lists" -oDir::State::status="$dir/status" -oDir::Cache="$dir/cache" "$@"
}

# debian_update ARCH: package lists of that architecture, refreshed at most once a day. A mirror in the middle of its own
# update serves some lists with a wrong digest: apt drops those, and the rest is enough to go on with.
debian_update() {
    local dir=$DEBIAN/$DEBIAN_SUITE-$1 log=$TARGET/apt-update.log
    [ -n "$(find "$dir/updated" -mmin -1440 2>/dev/null)" ] && return
    say "reading Debian $DEBIAN_SUITE package lists ($1)"
    mkdir -p "$dir"
    if debian_apt "$1" apt-get -oAcquire::Retries=3 update >"$log" 2>&1; then
        touch "$dir/updated"
    elif compgen -G "$dir/lists/*dists_${DEBIAN_SUITE}_main_binary-$1_Packages*" >/dev/null; then
        say "some package lists could not be read, see ${log#"$ROOT/"}"
    else
        tail -n 20 "$log" >&2
        die "cannot read Debian's package lists"
    fi
}

# record_fallback WHAT: a pin could not be had and the newest signed version stands in; kept for whoever reads the result.
record_fallback() {
    mkdir -p "$DEBIAN"
    grep -qxF "$*" "$DEBIAN/fallbacks" 2>/dev/null || echo "$*" >>"$DEBIAN/fallbacks"
    say "pin not available, newest signed version instead: $*"
}

# debian_fetch_pinned ARCH NAME...: downloads what is pinned and not here, all at once: each call of apt reads its lists for
# more than a second. What cannot be had this way is left to debian_fetch.
debian_fetch_pinned() {
    local arch=$1 name version sha file part; shift
    local pool=$DEBIAN/pool/$arch wanted=()
    mkdir -p "$pool"
    while read -r _ name version _; do
        [ -e "$pool/${name}_${version//:/%3a}.deb" ] || wanted+=("$name=$version")
    done < <(awk -v a="$arch" -v names="$*" 'BEGIN { split(names, n, " "); for (i in n) want[n[i]] = 1 } $1 == a && $2 in want' "$ROOT/cross/debian.pins")
    [ ${#wanted[@]} -gt 1 ] || return 0
    debian_update "$arch" >&2
    part=$(mktemp -d "$pool/part.XXXXXX")
    if (cd "$part" && debian_apt "$arch" apt-get download "${wanted[@]}") >/dev/null 2>&1; then
        for name in "${wanted[@]}"; do
            version=${name#*=} name=${name%%=*}
            file=${name}_${version//:/%3a}.deb
            sha=$(awk -v a="$arch" -v n="$name" '$1 == a && $2 == n { print $4 }' "$ROOT/cross/debian.pins")
            # apt's name for the file ends with the architecture.
            [ "$(sha256_of "$part/${file%.deb}"_*.deb)" = "$sha" ] || die "$name $version ($arch): the digest is not the pinned $sha"
            mv "$part/${file%.deb}"_*.deb "$pool/$file"
        done
    fi
    rm -rf "$part"
}

# debian_fetch ARCH NAME...: prints one path of a .deb per name. Pins are in cross/debian.pins; what has no pin, or whose
# pinned version has left the mirrors, is the newest version that Debian signed, recorded in target/debian/fallbacks.
debian_fetch() {
    local arch=$1 name pin version sha file part; shift
    local pool=$DEBIAN/pool/$arch
    debian_fetch_pinned "$arch" "$@"
    for name; do
        pin=$(awk -v a="$arch" -v n="$name" '$1 == a && $2 == n' "$ROOT/cross/debian.pins")
        read -r _ _ version sha <<<"$pin" || true
        file=$pool/${name}_${version//:/%3a}.deb
        if [ -n "$pin" ] && [ -e "$file" ]; then echo "$file"; continue; fi
        if [ -e "$pool/$name.newest" ]; then echo "$pool/$(cat "$pool/$name.newest")"; continue; fi
        debian_update "$arch" >&2
        part=$(mktemp -d "$pool/part.XXXXXX")
        if [ -n "$pin" ] && (cd "$part" && debian_apt "$arch" apt-get download "$name=$version") >/dev/null 2>&1; then
            [ "$(sha256_of "$part"/*.deb)" = "$sha" ] || die "$name $version ($arch): the digest is not the pinned $sha"
            mv "$part"/*.deb "$file"
            echo "$file"
        else
            (cd "$part" && debian_apt "$arch" apt-get download "$name") >/dev/null 2>&1 || die "cannot download $name ($arch)"
            file=$(basename "$part"/*.deb)
            mv "$part/$file" "$pool/$file"
            echo "$file" >"$pool/$name.newest"
            record_fallback "$arch $name ${version:-unpinned} -> $file sha256 $(sha256_of "$pool/$file")"
            echo "$pool/$file"
        fi
        rm -rf "$part"
    done
}

# with_libraries ARCH "NAME...": those packages and the ones that pure library dependencies lead to. Maintainer scripts do not
# run where they are unpacked, so what only those need (debconf, adduser, init helpers) is left out.
with_libraries() {
    local arch=$1 queue=$2 seen=" " name
    local cache="$DEBIAN/packages-$arch-${queue// /-}"
    if [ ! -e "$cache" ]; then
        debian_update "$arch"
        while [ -n "$queue" ]; do
            name=${queue%% *}
            queue=${queue#"$name"}; queue=${queue# }
            case $seen in *" $name "*) continue ;; esac
            seen+="$name "
            for name in $(debian_apt "$arch" apt-cache depends --important "$name" | awk '$1 == "Depends:" && $2 ~ /^(lib|zlib)/ && $2 !~ /^lib(debconf|pam|semanage)/ { print $2 }'); do
                queue+="${queue:+ }$name"
            done
        done
        mkdir -p "$DEBIAN"
        printf '%s\n' "$seen" >"$cache"
    fi
    cat "$cache"
}
