#!/bin/sh
# usage: uninstall.sh PREFIX [--prefix FOLDER]: removes what `freestone install` made, by the list that it left: first
# the files, then the list itself, then folders, inner ones first. A folder that holds other files stays.
set -eu
fail() { printf 'freestone: uninstall: %s\n' "$1" >&2; exit 2; }
prefix=$1
shift
while [ $# -gt 0 ]; do
    case $1 in
    --prefix=*) prefix=${1#*=} ;;
    --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
    -h | --help) echo "Usage: freestone uninstall [--prefix FOLDER]   removes what install put there"; exit 0 ;;
    *) fail "unknown argument '$1'; expected --prefix FOLDER" ;;
    esac
    shift
done
list=$prefix/share/freestone/installed-files
[ -f "$list" ] || fail "there is no $list, which 'freestone install' leaves"
while IFS= read -r path; do
    case $path in
    /*) place=$path ;;
    *) place=$prefix/$path ;;
    esac
    case $path in
    */) [ ! -d "$place" ] || rmdir "$place" 2>/dev/null || echo "kept $place, which holds other files" ;;
    *) rm -f "$place" || fail "$(id -un) may not remove $place" ;;
    esac
done <"$list"
[ "$(id -u)" != 0 ] || ldconfig 2>/dev/null || :
echo "removed from $prefix"
