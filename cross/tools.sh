#!/usr/bin/env bash
# tools.sh: installs what the cross build needs and is not here: host packages, the Rust toolchain, zig and the static libseccomp.
# Runs again in a moment when everything is here.
. "$(dirname "$0")/lib.sh"
hold_lock

# Asks the list first: rustup's rustc installs a missing toolchain by itself, for minutes and without a word of ours.
has_target() {
    rustup toolchain list 2>/dev/null | grep -q "^$1[- ]" &&
        [ -d "$(rustup run "$1" rustc --print sysroot 2>/dev/null)/lib/rustlib/$TRIPLE/lib" ]
}

ensure_rust() {
    local channel
    channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$ROOT/rust-toolchain.toml")
    command -v rustup >/dev/null || die "rustup is missing: https://rustup.rs"
    has_target "$channel" && return
    say "installing Rust $channel with $TRIPLE"
    rustup toolchain install "$channel" --profile minimal --component rustfmt --component clippy --target "$TRIPLE" --no-self-update >"$TARGET/rustup.log" 2>&1 || true
    has_target "$channel" || ensure_rust_source
}

# Where the toolchain's server cannot be reached, Debian's package of the standard library's source, of the very version of
# rustc, is compiled along: cross/build.sh looks for it.
ensure_rust_source() {
    local version deb
    version=$(cd "$ROOT" && rustc --version | cut -d' ' -f2) || die "no Rust toolchain, and none can be installed: see target/rustup.log"
    [ "$(cat "$TOOLS/rust-source.version" 2>/dev/null)" = "$version" ] && return
    say "$TRIPLE cannot be installed: taking the source of the standard library from Debian"
    for DEBIAN_SUITE in trixie-backports trixie; do
        debian_update "$DEBIAN_ARCH"
        deb=$(debian_apt "$DEBIAN_ARCH" apt-cache madison rust-src 2>/dev/null | awk -v v="$version" '$3 ~ "^" v "[+~-]" { print $3; exit }')
        [ -n "$deb" ] && break
    done
    [ -n "$deb" ] || die "Debian has no rust-src $version, and $TRIPLE cannot be installed: see target/rustup.log"
    rm -rf "$TOOLS/rust-source"; mkdir -p "$TOOLS/rust-source"
    (cd "$TOOLS/rust-source" && debian_apt "$DEBIAN_ARCH" apt-get download "rust-src=$deb" >/dev/null && dpkg -x rust-src_*.deb . && rm rust-src_*.deb)
    record_fallback "target $TRIPLE of rustc $version -> rust-src $deb"
    echo "$version" >"$TOOLS/rust-source.version"
}

ensure_zig() {
    local want; want=$(sha256_of "$ROOT/cross/requirements.txt")
    [ "$(cat "$TOOLS/requirements.sha256" 2>/dev/null)" = "$want" ] && return
    say "installing zig and cargo-zigbuild into target/tools"
    rm -rf "$TOOLS/python"; mkdir -p "$TOOLS"
    python3 -m venv "$TOOLS/python"
    "$TOOLS/python/bin/pip" --quiet install --require-hashes --no-deps -r "$ROOT/cross/requirements.txt"
    echo "$want" >"$TOOLS/requirements.sha256"
}

# The upstream tar archive of Debian's source package, checked against the pin.
libseccomp_source() {
    local version sha dir=$DEBIAN/source
    read -r _ _ version sha < <(grep '^source libseccomp ' "$ROOT/cross/debian.pins")
    local file=$dir/libseccomp_$version.orig.tar.gz
    mkdir -p "$dir"
    if [ ! -e "$file" ]; then
        debian_update "$DEBIAN_ARCH"
        (cd "$dir" && debian_apt "$DEBIAN_ARCH" apt-get source --download-only libseccomp) >"$TARGET/libseccomp.log" 2>&1 ||
            { tail -n 20 "$TARGET/libseccomp.log" >&2; die "cannot download the source of libseccomp"; }
    fi
    if [ -e "$file" ]; then
        [ "$(sha256_of "$file")" = "$sha" ] || die "libseccomp $version: the digest is not the pinned $sha"
    else
        file=$(find "$dir" -name 'libseccomp_*.orig.tar.gz' | sort -V | tail -n1)
        record_fallback "source libseccomp $version -> $(basename "$file") sha256 $(sha256_of "$file")"
    fi
    echo "$file"
}

ensure_libseccomp() {
    local out=$TOOLS/libseccomp-$TRIPLE
    local want; want=$(grep '^source libseccomp ' "$ROOT/cross/debian.pins")
    [ "$(cat "$out/built-from" 2>/dev/null)" = "$want" ] && [ -e "$out/LICENSE" ] && return
    local source work=$TOOLS/libseccomp-build
    source=$(libseccomp_source)
    say "building $(basename "$source" .orig.tar.gz) for $TRIPLE"
    rm -rf "$work" "$out"; mkdir -p "$work" "$out"
    tar -xf "$source" -C "$work" --strip-components=1
    local zig="$TOOLS/python/bin/python -m ziglang"
    (
        cd "$work"
        # The release archive has a configure script; only its headers and library are wanted, not tools and manual.
        [ -x configure ] || ./autogen.sh
        ./configure --host="$ZIG_TARGET" --prefix="$out" --enable-static --disable-shared --disable-dependency-tracking \
            CC="$zig cc -target $ZIG_TARGET" AR="$zig ar" RANLIB="$zig ranlib" CFLAGS="-Os -ffunction-sections -fdata-sections"
        make -C include install
        make -C src -j"$(nproc)" install
    ) >"$TARGET/libseccomp.log" 2>&1 || { tail -n 20 "$TARGET/libseccomp.log" >&2; die "libseccomp does not build"; }
    # Its text has to travel with a binary that it is linked into.
    cp "$work/LICENSE" "$out/LICENSE"
    rm -rf "$work"
    echo "$want" >"$out/built-from"
}

# skopeo and zstd are what tests compare our own reading and writing of images with; curl is a client that tests ask with.
install_packages ca-certificates curl gcc libc6-dev make pkg-config python3 python3-venv gperf xz-utils file binutils libseccomp-dev debian-archive-keyring skopeo zstd
ensure_rust
ensure_zig
ensure_libseccomp
