#!/bin/sh
# packaging/release.sh FOLDER: makes a release of the commit that is checked out, into a new or empty folder:
#
#   Debian packages, archive, wheel, container file    by `./freestone package`, for this machine's processor
#   freestone-VERSION.crate                            the Rust crate; cargo has built it from what it holds
#   freestone-VERSION.tar.gz                           the source
#   *.spdx.json, SHA256SUMS-*                          what all of these are (SPDX), and their checksums
#   notes.md                                           this version's section of CHANGELOG.md
#
# Ends with an error if the tree is not what is committed, the version is a development version or has no notes, a
# generated document is stale, a result is not of this version and code, or the limits of size are not this tree's.
set -eu
fail() { echo "release.sh: $*" >&2; exit 1; }
root=$(readlink -f "$(dirname "$0")/..")
[ $# = 1 ] || { echo "usage: packaging/release.sh FOLDER" >&2; exit 2; }
version=$("$root/freestone" --version | cut -d' ' -f2)
machine=$(uname -m)

mkdir -p "$1"
out=$(readlink -f "$1")
[ -z "$(ls -A "$out")" ] || fail "$out is not empty"
command -v cargo >/dev/null || fail "cargo is missing; it makes the crate"
changed=$(git -C "$root" status --porcelain) || fail "$root is no git checkout"
[ -z "$changed" ] || fail "commit or remove first:
$changed"
released=${version%-dev}
[ "$version" = "$released" ] || fail "$version is no release; first packaging/set_version.py $released, then measure"
notes=$(awk -v version="$version" '/^## / {found = $2 == version; next} found' "$root/CHANGELOG.md")
[ -n "$notes" ] || fail "CHANGELOG.md has no notes for $version"
sizes=allocator/tests/structure/size
python3 "$root/${sizes}_test.py" "$root" --write >/dev/null
git -C "$root" diff --quiet || fail "commit $sizes.txt: it has the sizes of an earlier release"
"$root/freestone" docs --release >&2 ||
    fail "these documents do not follow from docs/results (run ./freestone docs), or these results are not of this code
(docs/CONTRIBUTING.md, A release, says what measures them again)"

# An archive that holds the time of its making would differ each time; the time of the commit does not.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
"$root/freestone" package "$out"
crates=$(mktemp -d)
trap 'rm -rf "$crates"' EXIT
(cd "$root/rust" && cargo package --quiet --locked --target-dir "$crates")
cp "$crates/package/freestone-$version.crate" "$out"
git -C "$root" archive --format=tar.gz --prefix="freestone-$version/" -o "$out/freestone-$version.tar.gz" HEAD

cd "$out"
contents=freestone-$version-linux-$machine.spdx.json
python3 "$root/packaging/spdx.py" "$version" ./* >"$crates/contents"
cp "$crates/contents" "$contents"
sha256sum -- * >"$crates/sums"
cp "$crates/sums" "SHA256SUMS-$machine"
printf '%s\n' "$notes" >notes.md
