#!/usr/bin/env bash
# world.sh FOLDER: holds separate namespaces (mounts, processes, network, IPC, host name, cgroups)
# for containers while standard input is open. Prints `ready PID`, the pid of the world's init, for
# nsenter. When the input closes, for whatever reason, all processes of the world are killed, its
# mounts and network vanish, and FOLDER and its cgroups are removed.
set -uo pipefail
folder=${1:?}
name=iwarpd-containers-$(basename "$folder")

# Mount points of this machine's cgroup hierarchies.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts | sort -u; }

# Joins the world's own cgroup in each writable hierarchy.
join_cgroups() {
  local place
  for place in $(hierarchies); do
    mkdir "$place/$name" 2>/dev/null || continue
    # A new cpuset is empty and accepts no process, so fill it first.
    [[ ! -f $place/$name/cpuset.cpus || ! -f $place/cpuset.cpus ]] || {
      cat "$place/cpuset.cpus" >"$place/$name/cpuset.cpus"
      cat "$place/cpuset.mems" >"$place/$name/cpuset.mems"
    }
    echo 0 >"$place/$name/cgroup.procs"
  done
}

# Remounts the hierarchies, so that only the world's cgroups are visible. On a machine with versions
# 1 and 2, mounts version 1: runtimes reject the mixture.
mount_cgroups() {
  local place type options
  if [[ $(stat -f -c %T /sys/fs/cgroup) == cgroup2fs ]]; then
    umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # A cgroup may control its children only while it has no processes.
    mkdir /sys/fs/cgroup/init && echo 0 >/sys/fs/cgroup/init/cgroup.procs
    return
  fi
  while read -r _ place type options _; do
    case $type in
      cgroup2) umount "$place" ;;
      cgroup)
        umount "$place"
        options=$(tr ',' '\n' <<<"$options" | grep -vE '^(rw|relatime|nosuid|nodev|noexec|xattr)$' | paste -sd ,)
        case $options in name=*) options=none,$options ;; esac
        mount -t cgroup -o "$options" cgroup "$place"
        ;;
    esac
  done < <(grep -E ' cgroup2? ' /proc/mounts)
}

# /run and /dev/shm belong to the machine's own containers and services.
mount_scratch() {
  local names
  cp -L /etc/resolv.conf "$folder/resolv.conf" 2>/dev/null || : >"$folder/resolv.conf"
  mount -t tmpfs -o mode=0755 tmpfs /run && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || return 1
  names=$(readlink -m /etc/resolv.conf)
  mkdir -p "$(dirname "$names")" && { [[ -e $names ]] || : >"$names"; }
  mount --bind "$folder/resolv.conf" "$names"
}

case ${2-} in
  '')
    # Ctrl-C at a terminal reaches this process, too, which must still clean up.
    trap '' INT TERM HUP
    exec 3<&0
    unshare --mount --net --pid --ipc --uts --fork --kill-child \
      bash "${BASH_SOURCE[0]}" "$folder" init <&3
    status=$?
    for place in $(hierarchies); do
      [[ ! -d $place/$name ]] || find "$place/$name" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    # The kernel releases a mount shortly after the last process that saw it.
    for _ in 1 2 3 4 5; do
      rm -rf --one-file-system -- "$folder" && break
      sleep 0.2
    done
    exit "$status"
    ;;
  init)
    # This is still the machine's /proc, so this is the pid that others see.
    read -r pid _ </proc/self/stat
    mount --make-rprivate / && mount -t proc proc /proc && mount_scratch || exit 1
    ip link set lo up || exit 1
    hostname world
    join_cgroups
    exec unshare --cgroup bash "${BASH_SOURCE[0]}" "$folder" serve "$pid"
    ;;
  serve)
    mount_cgroups
    echo "ready $3"
    # bash reaps orphans.
    while read -r _; do :; done
    ;;
esac
