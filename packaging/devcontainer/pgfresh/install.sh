#!/bin/sh
# Installs pgfresh into a development container. The tools for development containers run this script as root while
# they build the image, with the options of devcontainer-feature.json as variables.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
from=${FROM:-$here/release}
prefix=${PREFIX:-/usr/local}
cache=${PGFRESH_CACHE:-/var/cache/pgfresh}

fail() {
    echo "pgfresh feature: $1" >&2
    [ $# = 1 ] || echo "HINT:  $2" >&2
    exit 1
}

script=$(mktemp)
trap 'rm -f "$script"' EXIT
case $from in
    *://*)
        if command -v curl >/dev/null; then
            curl --proto '=https' --tlsv1.2 -fsSL -o "$script" "$from/pgfresh-install.sh"
        elif command -v wget >/dev/null; then
            wget --https-only -q -O "$script" "$from/pgfresh-install.sh"
        else
            fail "neither curl nor wget is installed"
        fi || fail "could not get \"pgfresh-install.sh\" from $from"
        ;;
    *)
        cp "$from/pgfresh-install.sh" "$script" 2>/dev/null ||
            fail "there is no file \"$from/pgfresh-install.sh\"" \
                "Copy the files of a release into the folder \"release\" of the feature, or set the option \"from\"."
        ;;
esac
sh "$script" --to "$prefix" --from "$from"

has_postgres() {
    command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1
}

if [ "${POSTGRES:-true}" = true ] && ! has_postgres; then
    if command -v apt-get >/dev/null; then
        # Otherwise the package would start its own server in each container.
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql >/dev/null
        rm -rf /var/lib/apt/lists/*
    elif command -v apk >/dev/null; then
        apk add --no-cache --quiet postgresql
    else
        fail "cannot install PostgreSQL: there is neither apt-get nor apk" \
            "Set the option \"postgres\" to false. pgfresh then uses the PostgreSQL that you install, or downloads one."
    fi
fi

# A volume that is mounted here inherits the owner of this folder.
mkdir -p "$cache"
chown "${_REMOTE_USER:-root}" "$cache"
