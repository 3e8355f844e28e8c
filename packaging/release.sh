#!/bin/sh
# packaging/release.sh FOLDER: what a release consists of: the packages that `./freestone package` makes, the list of
# contents (SPDX), checksums of all, and the notes of this version from CHANGELOG.md.
set -eu
root=$(readlink -f "$(dirname "$0")/..")
[ $# = 1 ] || { echo "usage: packaging/release.sh FOLDER" >&2; exit 2; }
out=$1
version=$("$root/freestone" --version | cut -d' ' -f2)
machine=$(uname -m)

# An archive that holds the time of its making would differ each time; the time of the commit does not.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
"$root/freestone" package "$out"
cd "$out"
python3 "$root/packaging/spdx.py" "$version" ./*.deb ./*.tar.gz ./*.whl ./*.Containerfile \
  >"freestone-$version-linux-$machine.spdx.json"
awk -v wanted="## $version" '$0 == wanted {found = 1; next} /^## / {found = 0} found' "$root/CHANGELOG.md" >notes.md
sha256sum ./*"$version"* | sed 's|\./||' >"SHA256SUMS-$machine"
