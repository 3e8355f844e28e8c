#!/bin/sh
# packaging/release.sh FOLDER: what a release consists of, from build/release, which is built: the Debian packages, the libraries as an
# archive, the list of contents (SPDX), checksums of all, and the notes of this version from CHANGELOG.md.
set -eu
root=$(readlink -f "$(dirname "$0")/..")
[ $# = 1 ] || { echo "usage: packaging/release.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
out=$(readlink -f "$1")
version=$(sed -n 's/^project(.* VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
machine=$(uname -m)
name=freestone-$version-linux-$machine

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && cpack -G DEB --config "$root/build/release/CPackConfig.cmake" >&2)
find "$scratch" -maxdepth 1 -name '*.deb' -exec cp {} "$out" \;

for component in libfreestone1 libfreestone-dev; do
    cmake --install "$root/build/release" --prefix "$scratch/$name" --component $component >/dev/null
done
cp "$root/LICENSE" "$root/README.md" "$root/CHANGELOG.md" "$scratch/$name"
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner -czf "$out/$name.tar.gz" "$name"

python3 "$root/packaging/spdx.py" "$version" "$out"/*.deb "$out/$name.tar.gz" >"$out/$name.spdx.json"
awk -v wanted="## $version" '$0 == wanted {found = 1; next} /^## / {found = 0} found' "$root/CHANGELOG.md" >"$out/notes.md"
(cd "$out" && sha256sum ./*"$version"* | sed 's|\./||' >"SHA256SUMS-$machine")
