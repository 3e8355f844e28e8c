# Makes a Debian's root under FOLDER writable without changing ROOT, names the libraries in its /etc/ld.so.preload, and
# runs adoption_inside.sh in it. In namespaces of its own, where every process is this script's.
#   adoption.sh ROOT FOLDER LIBRARY...
set -e
scripts=$(dirname "$0") root=$1 folder=$2
shift 2
mount --make-rprivate /
mkdir "$folder/upper" "$folder/work" "$folder/merged"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$folder/upper,workdir=$folder/work" "$folder/merged"
cd "$folder/merged"
mount -t proc proc proc
mount --rbind /dev dev
cp "$scripts/adoption_inside.sh" inside.sh
echo "127.0.0.1 here" > etc/hosts
hostname here
echo none > library
for library in "$@"; do
  cp "$library" usr/lib/
  basename "$library" > library
  echo "/usr/lib/$(basename "$library")" >> etc/ld.so.preload
done
exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TZ=UTC \
  SOURCE_DATE_EPOCH=1700000000 DEBIAN_FRONTEND=noninteractive chroot . /bin/bash inside.sh
