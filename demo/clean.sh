#!/bin/sh
# clean.sh FOLDER SOCKETS: waits for the end of the demo, which closes its standard input however it ends. Then ends the server in
# the folder, and removes both folders.
trap '' HUP INT TERM
cat >/dev/null
lock=$1/data/postmaster.pid
server=$(head -n 1 "$lock" 2>/dev/null) && kill -QUIT "$server" 2>/dev/null
while [ -e "$lock" ] && kill -0 "$server" 2>/dev/null; do sleep 0.02; done
rm -rf "$1" "$2"
