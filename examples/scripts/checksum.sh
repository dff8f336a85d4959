#!/usr/bin/env bash
# Writes the SHA-256 sum of each attachment to `sums` in the message's folder.
set -u
shopt -s nullglob

tell() { printf '%s %s\n' "$1" "$2" >&"$RQ_WRITE"; }

files=(../attach/*)
if [ ${#files[@]} -eq 0 ]; then
    tell err "no attachments"
    exit 0
fi
n=0
for file in "${files[@]}"; do
    n=$((n + 1))
    tell run "file $n of ${#files[@]}"
    sha256sum "$file" >>sums || {
        tell err "cannot read ${file##*/}"
        exit 0
    }
done
tell done "$n files"
