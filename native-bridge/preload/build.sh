#!/usr/bin/env bash
# Compiles the shim. Arguments: the file to write, then options for the compiler ($CC, else cc).
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=$1
shift
mkdir -p "$(dirname "$target")"
# A distribution's own defaults (fortification, lazy binding) must not change what is built: libc's
# checking variants are among the names that the shim defines.
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -U_FORTIFY_SOURCE -O2 -g -Wall -Wextra \
  -fPIC -fvisibility=hidden -fno-strict-aliasing \
  -shared -pthread -Wl,-soname,libiwarpd-preload.so -Wl,-z,relro,-z,now -Wl,--no-undefined \
  "$@" "$source"/*.c -ldl -o "$target.new"
# Programs that have the old one loaded keep it.
mv -f "$target.new" "$target"
