# Logins, sudo, su, cron, packages and tools on a machine whose /etc/ld.so.preload names the library. Prints all that
# they say, errors too, and how each ends. /proof gets the processes without the library, as seen from each place.
exec 2>&1
cd /
try() {
  echo "== $*"
  "$@"
  echo "-- $?"
}

cat > /usr/bin/show <<'S'
#!/bin/sh
id -un
grep -Lw "$(cat /library)" /proc/[0-9]*/maps > "/proof/$1" 2> /dev/null || :
S
chmod 755 /usr/bin/show
mkdir -p -m 1777 /proof
mkdir -p /run/sshd /run/lock

try useradd -m -s /bin/bash person
echo "person ALL=(ALL) NOPASSWD: ALL" > /etc/sudoers.d/person
chmod 440 /etc/sudoers.d/person
try visudo -c
try ssh-keygen -q -A
ssh-keygen -q -t ed25519 -N "" -f /root/key
for home in /root /home/person; do
  mkdir -p $home/.ssh
  cp /root/key.pub $home/.ssh/authorized_keys
done
chown -R person: /home/person/.ssh
cat > /root/.ssh/config <<'C'
Host *
  IdentityFile /root/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ProxyCommand /usr/sbin/sshd -i
C
# Two streams come through a login: what they say is put in one.
try ssh root@here 'exec 2>&1; show ssh-root; echo $HOME'
try ssh person@here 'exec 2>&1; show ssh; sudo show ssh-sudo; sudo -u person show ssh-sudo-person; echo $HOME'
try scp -q /etc/passwd person@here:copy
try cmp /etc/passwd /home/person/copy
try su person -c 'show su'
try su - person -c 'sudo -n true && sudo -l | tail -1'
try runuser -u person -- show runuser
echo person:secret | try chpasswd
try passwd -S root
try chage -M 90 person
try getent passwd person

mkdir -p /repository /package/DEBIAN /package/usr/share/freestone-test
cat > /package/DEBIAN/control <<'C'
Package: freestone-test
Version: 1
Architecture: all
Maintainer: Nobody <nobody@here>
Description: a test
C
printf '#!/bin/sh\nshow dpkg\n' > /package/DEBIAN/postinst
chmod 755 /package/DEBIAN/postinst
echo text > /package/usr/share/freestone-test/file
try dpkg-deb --root-owner-group -b /package /repository/freestone-test.deb
{
  dpkg-deb -f /repository/freestone-test.deb
  echo "Filename: ./freestone-test.deb"
  echo "Size: $(stat -c %s /repository/freestone-test.deb)"
  echo "SHA256: $(sha256sum /repository/freestone-test.deb | cut -d ' ' -f 1)"
} > /repository/Packages
rm -rf /etc/apt/sources.list.d/*
echo "deb [trusted=yes] file:/repository ./" > /etc/apt/sources.list
try apt-get -qq update
try apt-get -qq install freestone-test
try dpkg -V freestone-test
try apt-cache policy freestone-test
try apt-get -qq purge freestone-test

echo '@reboot root show cron; touch /proof/cron-ran' > /etc/cron.d/test
try cron
for _ in $(seq 600); do
  [ -e /proof/cron-ran ] && break
  sleep 0.1
done
try ls /proof/cron /proof/cron-ran
kill "$(cat /run/crond.pid)"

try python3 -c '
import json, subprocess, threading
def work(): print(len(json.loads(json.dumps([[i] * 50 for i in range(2000)]))), flush=True)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(subprocess.run(["show", "python"], capture_output=True, text=True).stdout)'
try perl -e 'my %h; $h{$_} = $_ x 3 for 1 .. 20000; print scalar(keys %h), "\n"'
try sh -c 'find /usr/share -type f | xargs -P4 -n50 sha256sum | sort | sha256sum'
try sh -c 'tar -C / -c usr/share/doc | gzip | tar tz | sort | sha256sum'
try ldconfig
try sh -c 'ldd /bin/ls | grep -c libc.so'
try bash -c 'for i in $(seq 100); do /bin/true || echo "$i failed"; done'
try userdel -r person
