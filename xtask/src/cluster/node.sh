# PID 1 of a node, in its own network, mount, pid and uts namespaces.
# Arguments: the node's name, its directory, its address, the control plane's address, its cgroup; then PODS VIA pairs,
# the addresses of the other nodes' pods and the way to them.
set -eu
name=$1 dir=$2 address=$3 gateway=$4 cgroup=$5
shift 5

# containerd, kubelet and kube-proxy use their usual paths, each node has its own behind them.
mount -t tmpfs tmpfs /run
mount --bind "$dir/lib" /var/lib
mount --bind "$dir/log" /var/log
hostname "$name"

# What is the machine's own, and must be the node's: its identity, and settings that the kubelet would write for the
# whole machine unless it finds them as it wants them.
over() { echo "$1" >"$dir/etc/$2"; mount --bind "$dir/etc/$2" "$3"; }
[ ! -e /etc/machine-id ] || over "$(echo "$dir" | md5sum | cut -c1-32)" machine-id /etc/machine-id
over "$(cat /proc/sys/kernel/random/uuid)" boot_id /proc/sys/kernel/random/boot_id
over 1 overcommit_memory /proc/sys/vm/overcommit_memory
over 10 panic /proc/sys/kernel/panic
over 1 panic_on_oops /proc/sys/kernel/panic_on_oops
mount --make-rshared /

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$cgroup"
else
    for hierarchy in /sys/fs/cgroup/*/; do
        [ "$hierarchy" = /sys/fs/cgroup/unified/ ] || mkdir -p "$hierarchy$cgroup"
    done
fi

ip link set lo up
# The cable is plugged in from outside.
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
while [ $# -gt 0 ]; do
    ip route add "$1" via "$2"
    shift 2
done
echo 1 >/proc/sys/net/ipv4/ip_forward
# So that a service's address works between pods of one node, too.
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables

echo up >"$dir/up"
# It inherits the processes whose parents have ended, and waits for them too.
while :; do
    sleep 1000 &
    wait $! || :
done
