#!/bin/sh
# Runs a program of this folder: `sh deploy/node.sh [FLAGS] PROGRAM [ARGUMENTS]`. It takes the Node
# that is installed, if that is 24.7 or later, and otherwise the packaged one. An installed one gets
# the security updates of its system.
set -u
home=$(cd "${0%/*}/.." && pwd)
modules=$home/node_modules
# The packages of an installed package are beside it.
case $home in */node_modules/*) modules=${home%/*} ;; esac

# What a Node answers that is new enough; nothing for another one, or one that does not run.
suits() {
  version=$("$1" --version 2>/dev/null) || return 1
  rest=${version#v*.}
  major=${version%%.*}
  major=${major#v}
  minor=${rest%%.*}
  [ "$major" -gt 24 ] || { [ "$major" -eq 24 ] && [ "$minor" -ge 7 ]; }
}

node= seen=
IFS=:
for folder in $PATH; do
  # npm puts the packaged one first.
  case $folder in */node_modules/.bin) continue ;; esac
  [ -x "$folder/node" ] || continue
  if suits "$folder/node"; then
    node=$folder/node
    break
  fi
  seen="$seen $folder/node is ${version:-broken};"
done
unset IFS
# The npm of Debian 12 makes no link to it in .bin.
for packaged in "$modules/.bin/node" "$modules"/node-*/bin/node; do
  [ -z "$node" ] && suits "$packaged" && node=$packaged
done
if [ -z "$node" ]; then
  echo "The gateway needs Node 24.7 or later:${seen:- no Node is installed;} and the one in" \
    "node_modules is missing or does not run here. Install a newer Node, or run" \
    "\`npm ci --omit=dev\` again." >&2
  exit 1
fi

# The flags tune its memory. Another major version may lack some, and refuses to run with those.
program=
for word in "$@"; do
  shift
  if [ -z "$program" ] && [ "${word#--}" != "$word" ]; then
    [ "$major" -eq 24 ] || "$node" "$word" --version >/dev/null 2>&1 || continue
  else
    program=named
  fi
  set -- "$@" "$word"
done
exec "$node" "$@"
