# `freestone install`, a part of the entry script, which calls it with what stands behind that word.

# served LIBRARY: whether the installed probe, with LIBRARY preloaded, finds that Freestone serves its blocks.
served() {
    LD_PRELOAD=$1 FREESTONE_CONF='' FREESTONE_DISABLE=0 "$probe" 2>/dev/null |
        grep -q '"passed_on":false.*"malloc":"[^"]*libfreestone'
}

# files_and_folders PREFIX: of what is staged, each file below PREFIX and each folder that is not there yet; of an
# earlier installation, all.
files_and_folders() {
    (cd "$stage$1" && find . ! -name . \( -type d -exec printf '%s/\n' {} + -o -print \)) | while IFS= read -r path; do
        case $path in */) [ ! -d "$1/$path" ] || continue ;; esac
        echo "${path#./}"
    done
    place=$1
    while [ ! -d "$place" ]; do echo "$place/"; place=$(dirname "$place"); done
    cat "$1/$list" 2>/dev/null || :
}

# install_libraries PREFIX: builds what is installed, stages it, copies it with a list for `uninstall`, and proves that
# the preload serves malloc.
install_libraries() {
    case $1 in *[[:space:]:]*) fail "install: '$1': $unreachable; name another --prefix" ;; esac
    must_write "$1" "; as root, or into a folder of your own: ./freestone install --prefix FOLDER"
    must_write "$root/build" "$built_there"
    need_build_tools
    log=$root/build/install.log stage=$root/build/stage list=share/freestone/installed-files
    say "building and installing; log: $log"
    build_targets release libraries freestone_probe freestone_record freestone-record freestone-replay \
        freestone-workload 2>"$log" &&
        rm -rf "$stage" && DESTDIR=$stage cmake --install "$root/build/release" --prefix "$1" >>"$log" 2>&1 &&
        files_and_folders "$1" >"$stage/all" &&
        { grep -v '/$' "$stage/all" | sort -u && echo "$list" &&
            { grep '/$' "$stage/all" | LC_ALL=C sort -ru || :; }; } >"$stage$1/$list" &&
        (umask 022 && mkdir -p "$1" && cd "$stage$1" &&
            find . ! -type d | tar -cf - -T - | tar -xpf - -C "$1") 2>>"$log" &&
        rm -rf "$stage" ||
        fail "install: $(tail -n 1 "$log"); see $log"
    library=$1/$(grep '/libfreestone\.so\.1$' "$1/$list")
    probe=$1/$(grep '/probe$' "$1/$list")
    if [ "$(id -u)" = 0 ]; then ldconfig 2>/dev/null || :; fi
    if served libfreestone.so.1; then
        preload=libfreestone.so.1
    elif served "$library"; then
        preload=$library
    else
        fail "install: $library was installed, and does not serve malloc when it is preloaded"
    fi
    echo "installed in $1; undo: $root/freestone uninstall --prefix $1"
    echo "proven: LD_PRELOAD=$preload serves malloc"
}

prefix=/usr/local
while [ $# -gt 0 ]; do
    case $1 in
    --prefix=*) prefix=${1#*=} ;;
    --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
    -h | --help)
        echo "Usage: freestone install [--prefix FOLDER]   builds and installs libraries, headers and this" \
            "command, by default in /usr/local, and proves that the preload serves malloc"
        exit 0
        ;;
    *) fail "install: unknown argument '$1'; expected --prefix FOLDER" ;;
    esac
    shift
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
install_libraries "$prefix"
