#!/usr/bin/env bash
# A compiler for build.sh that keeps the object of each source in the folder $KEPT_OBJECTS: a
# source with the same text, headers and options is not compiled again.
set -euo pipefail
options=()
sources=()
linked=()
while [[ $# -gt 0 ]]; do
  case $1 in
    -o) target=$2 && shift ;;
    *.c) sources+=("$1") ;;
    -l* | -Wl,* | -shared) linked+=("$1") ;;
    *) options+=("$1") ;;
  esac
  shift
done
objects=()
for source in "${sources[@]}"; do
  key=$({ echo "${options[@]}" && cat "$source" "$(dirname "$source")"/*.h; } | sha256sum | cut -c 1-16)
  object=$KEPT_OBJECTS/$(basename "$source" .c)-$key.o
  [[ -f $object ]] || cc "${options[@]}" -c "$source" -o "$object"
  objects+=("$object")
done
cc "${options[@]}" "${objects[@]}" "${linked[@]}" -o "$target"
