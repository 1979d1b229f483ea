#!/bin/sh
# Installs pgfresh @VERSION@: the binary, its manual pages and shell completions. Run it as the user who runs tests,
# without root.
#
#   sh pgfresh-install.sh                    # into ~/.local; as root into /usr/local
#   sh pgfresh-install.sh --to PREFIX
#   sh pgfresh-install.sh --from FOLDER      # the files of the release are in a folder, or below another URL
#
# This script contains the digests of the archives. If minisign is installed, the script also checks the signature of
# SHA256SUMS.
#
# The build for macOS is experimental. macOS refuses to start a binary that a browser has downloaded, because browsers
# mark downloaded files, unlike curl. "xattr -d com.apple.quarantine FILE" removes the mark from a file.
set -eu

version=@VERSION@
oldest_macos=@MACOS@
from=@RELEASE@
public_key=@PUBLIC_KEY@
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi

fail() {
    echo "pgfresh-install: $1" >&2
    [ $# = 1 ] || echo "HINT:  $2" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --to) prefix=${2:?--to needs a folder} ;;
        --from) from=${2:?--from needs a folder or a URL} ;;
        *) fail "unknown argument \"$1\"" "The options are --to PREFIX and --from FOLDER." ;;
    esac
    shift 2
done

system=$(uname -s) machine=$(uname -m)
# A shell under Rosetta reports an Intel processor.
if [ "$system" = Darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then machine=arm64; fi
case $system-$machine in
    Linux-x86_64 | Linux-amd64) platform=x86_64-linux digest=@DIGEST_X86_64_LINUX@ ;;
    Linux-aarch64 | Linux-arm64) platform=aarch64-linux digest=@DIGEST_AARCH64_LINUX@ ;;
    Darwin-x86_64) platform=x86_64-darwin digest=@DIGEST_X86_64_DARWIN@ ;;
    Darwin-arm64) platform=aarch64-darwin digest=@DIGEST_AARCH64_DARWIN@ ;;
    Linux-* | Darwin-*) fail "there is no pgfresh for $system on $machine" "Build it in a clone of pgfresh: make install" ;;
    *) fail "there is no pgfresh for $system" "Use the container image as a service. On Windows, use WSL 2." ;;
esac
if [ "$system" = Darwin ]; then
    macos=$(sw_vers -productVersion)
    [ "${macos%%.*}" -ge "$oldest_macos" ] || fail "pgfresh needs macOS $oldest_macos or newer, and this is $macos"
fi
name=pgfresh-$version-$platform

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# get FILE: downloads or copies the file to $work.
get() {
    case $from in
        *://*)
            if command -v curl >/dev/null; then
                curl --proto '=https' --tlsv1.2 -fsSL -o "$work/$1" "$from/$1"
            elif command -v wget >/dev/null; then
                wget --https-only -q -O "$work/$1" "$from/$1"
            else
                fail "neither curl nor wget is installed"
            fi
            ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac || fail "could not get \"$1\" from $from" "Name where the files of the release are: --from FOLDER or --from URL."
}

# sums: checks the digests on standard input. macOS has only shasum.
sums() {
    if command -v sha256sum >/dev/null; then sha256sum -c - >/dev/null 2>&1; else shasum -a 256 -c - >/dev/null 2>&1; fi
}

get "$name.tar.gz"
echo "$digest  $work/$name.tar.gz" | sums ||
    fail "\"$name.tar.gz\" is not the file of this release: its SHA-256 digest differs"
if command -v minisign >/dev/null; then
    get SHA256SUMS
    get SHA256SUMS.minisig
    minisign -Vqm "$work/SHA256SUMS" -x "$work/SHA256SUMS.minisig" -P "$public_key" ||
        fail "the signature of \"SHA256SUMS\" is not by the key of this release"
    grep -qx "$digest  $name.tar.gz" "$work/SHA256SUMS" || fail "\"SHA256SUMS\" has another digest of \"$name.tar.gz\""
fi

tar -xzf "$work/$name.tar.gz" -C "$work"
cd "$work/$name"
umask 022
mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions" \
    "$prefix/share/zsh/site-functions" "$prefix/share/fish/vendor_completions.d" "$prefix/share/doc/pgfresh"
# Replace the binary with a rename, which works even while pgfresh is running.
cp pgfresh "$prefix/bin/.pgfresh.$$"
chmod 755 "$prefix/bin/.pgfresh.$$"
mv -f "$prefix/bin/.pgfresh.$$" "$prefix/bin/pgfresh"
cp man/*.1 "$prefix/share/man/man1"
cp completions/pgfresh.bash "$prefix/share/bash-completion/completions/pgfresh"
cp completions/_pgfresh "$prefix/share/zsh/site-functions/_pgfresh"
cp completions/pgfresh.fish "$prefix/share/fish/vendor_completions.d/pgfresh.fish"
cp LICENSE THIRD-PARTY-LICENSES.txt "$prefix/share/doc/pgfresh"

echo "Installed pgfresh $version in $prefix/bin"
[ "$system" = Linux ] || echo "It is experimental on this system: cross-built, its logic tested on Linux, never run on a Mac."
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "HINT:  It is not on PATH. Run: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
