#!/bin/sh
# Installs pgfresh @VERSION@: the binary, its manual pages and shell completions. Run it as the user who tests; it needs no root.
#
#   sh pgfresh-install.sh                    # into ~/.local; as root into /usr/local
#   sh pgfresh-install.sh --to PREFIX
#   sh pgfresh-install.sh --from FOLDER      # the files of the release are in a folder, or below another URL
#
# The digests of the archives are part of this script. If minisign is installed, the signature of SHA256SUMS is checked too.
set -eu

version=@VERSION@
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

[ "$(uname -s)" = Linux ] || fail "there is no pgfresh for $(uname -s)" "Use the container image as a service."
case $(uname -m) in
    x86_64 | amd64) architecture=x86_64 digest=@DIGEST_X86_64@ ;;
    aarch64 | arm64) architecture=aarch64 digest=@DIGEST_AARCH64@ ;;
    *) fail "there is no pgfresh for $(uname -m)" "Build it in a clone of pgfresh: make install" ;;
esac
name=pgfresh-$version-$architecture-linux

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# get FILE: fetches it into $work.
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

get "$name.tar.gz"
echo "$digest  $work/$name.tar.gz" | sha256sum -c - >/dev/null 2>&1 ||
    fail "\"$name.tar.gz\" is not the file of this release: its SHA-256 digest is another one"
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
# By a rename, so that a pgfresh that runs is not in the way.
cp pgfresh "$prefix/bin/.pgfresh.$$"
chmod 755 "$prefix/bin/.pgfresh.$$"
mv -f "$prefix/bin/.pgfresh.$$" "$prefix/bin/pgfresh"
cp man/*.1 "$prefix/share/man/man1"
cp completions/pgfresh.bash "$prefix/share/bash-completion/completions/pgfresh"
cp completions/_pgfresh "$prefix/share/zsh/site-functions/_pgfresh"
cp completions/pgfresh.fish "$prefix/share/fish/vendor_completions.d/pgfresh.fish"
cp LICENSE THIRD-PARTY-LICENSES.txt "$prefix/share/doc/pgfresh"

echo "Installed pgfresh $version in $prefix/bin"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "HINT:  It is not on PATH. Run: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
