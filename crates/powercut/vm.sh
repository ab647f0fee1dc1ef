#!/usr/bin/env bash
# Builds what the virtual machine boots: DIR/vmlinuz and DIR/initrd, with PROGRAM in it as /bin/powercut.
#
#   vm.sh DIR PROGRAM
#
# Needs, on Debian: qemu-system-x86 busybox-static cpio kmod, and the package of a kernel for clouds, which is small:
#   apt-get update && apt-get install --no-install-recommends qemu-system-x86 busybox-static cpio kmod
# The kernel is not installed, only downloaded and unpacked, once: into $BROOKLET_VM_CACHE if that is set, else DIR.
# Exits with 77 where something is missing.
set -euo pipefail

dir=$1 program=$2
cache=${BROOKLET_VM_CACHE:-$dir}/kernel

missing() { echo "$1" >&2; exit 77; }

for tool in qemu-system-x86_64 setpriv busybox cpio depmod modprobe dpkg-deb apt-get; do
    command -v $tool >/dev/null || missing "there is no $tool; apt-get install qemu-system-x86 busybox-static cpio kmod"
done

if [[ ! -e $cache/done ]]; then
    rm -rf "$cache"
    mkdir -p "$cache"
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1)
    [[ -n $package ]] || missing "apt knows no linux-image-cloud-amd64; run apt-get update"
    (cd "$cache" && apt-get download -qq "$package" >/dev/null 2>&1) || missing "$package cannot be downloaded"
    dpkg-deb -x "$cache"/*.deb "$cache"
    depmod -b "$cache" "$(ls "$cache/lib/modules")"
    touch "$cache/done"
fi
version=$(ls "$cache/lib/modules")

root=$dir/root
mkdir -p "$root"/{bin,dev,proc,sys,mnt,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
# What is left out need not be carried into memory.
strip --strip-debug -o "$root/bin/powercut" "$program" 2>/dev/null || cp "$program" "$root/bin/powercut"
# A program that is not linked statically takes its libraries along.
for library in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' || true); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done

# Lists the modules that a module needs and itself, in order, for the init to load.
modules() {
    local list=$root/modules/$1 module file
    shift
    for module in "$@"; do
        modprobe --show-depends --ignore-install -d "$cache" -S "$version" "$module" |
            while read -r what file _; do
                [[ $what == insmod ]] || continue
                cp "$file" "$root/modules/"
                basename "$file"
            done
    done | awk '!seen[$0]++' >"$list"
}
modules at-boot virtio_pci virtio_console xfs
modules for-disk virtio_blk

# The disk's driver is loaded only when the harness speaks: before that the machine is frozen, to be thawed for each
# cut, and must know nothing of the disk.
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
$b mount -t sysfs none /sys
load() { while read -r m; do $b insmod "/modules/$m" 2>/dev/null; done <"/modules/$1"; }
load at-boot
exec 3<>/dev/vport0p1
echo booted >&3
read -r filesystem round seed <&3
echo "$seed" >/dev/urandom
load for-disk
while [ ! -e /dev/vda ]; do $b usleep 1000; done
echo mounting >&3
if $b mount -t "$filesystem" /dev/vda /mnt; then
    echo ready >&3
    powercut victim /mnt/store.brooklet --round "$round" --seed "$seed" >&3
else
    echo "stopped the $filesystem cannot be mounted" >&3
fi
while :; do $b sleep 1000; done
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --create --format=newc --quiet | gzip -1) >"$dir/initrd"
rm -rf "$root"
cp "$cache"/boot/vmlinuz-* "$dir/vmlinuz"
