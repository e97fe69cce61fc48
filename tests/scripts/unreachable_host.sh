#!/bin/sh
# Takes a host away from a run of two ranks on two hosts, and prints when the ranks have ended. The hosts are network
# namespaces of this machine: run it as root, with iproute2. usage: unreachable_host.sh openmpi|mpich BUILD
set -eu
mpi=${1:-}
case $mpi in openmpi | mpich) ;; *) echo "usage: unreachable_host.sh openmpi|mpich BUILD" >&2; exit 2 ;; esac
program=$(CDPATH='' cd -- "$2" && pwd)/tests/launched_program
for host in sotto1 sotto2; do
  [ ! -e "/run/netns/$host" ] || { echo "unreachable_host.sh: a namespace $host is there already" >&2; exit 1; }
done
folder=$(mktemp -d)

leave() {
  cat "$folder/hosts" >/etc/hosts
  ip netns delete sotto1 || true
  ip netns delete sotto2 || true
  rm -r "$folder"
}
cp /etc/hosts "$folder/hosts"
trap leave EXIT
trap 'exit 1' INT TERM
ip netns add sotto1
ip netns add sotto2
ip link add sotto_v netns sotto1 type veth peer name sotto_v netns sotto2
for host in 1 2; do
  ip netns exec sotto$host ip addr add 10.77.6.$host/24 dev sotto_v
  ip netns exec sotto$host ip link set sotto_v up
  ip netns exec sotto$host ip link set lo up
  echo "10.77.6.$host sotto$host" >>/etc/hosts
done

for host in 1 2; do
  until ip -n sotto$host link show sotto_v | grep -q "state UP"; do sleep 0.1; done
done

# The launchers run this in place of ssh: it drops options, takes the host and runs the rest there.
cat >"$folder/launch" <<'END'
#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"
END
chmod +x "$folder/launch"
# Namespaces share the machine's memory, which is not to carry messages.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_TLS=tcp,self UCX_NET_DEVICES=sotto_v
case $mpi in
  openmpi) command="mpirun.openmpi --bind-to none --mca plm_rsh_agent $folder/launch --host sotto1:1,sotto2:1" ;;
  mpich) command="mpirun.mpich -launcher ssh -launcher-exec $folder/launch -hosts sotto1,sotto2 -n 2" ;;
esac
on_first_host() { ip netns exec sotto1 unshare -u sh -c "hostname sotto1; exec $command $program $1"; }

on_first_host moves
on_first_host wait &
running() { pgrep -f "^$program wait" | wc -l; }
while [ "$(running)" -lt 2 ]; do sleep 0.1; done
sleep 2
ip netns exec sotto2 ip link set sotto_v down
start=$(date +%s)
while [ "$(running)" -gt 0 ]; do sleep 0.1; done
echo "$mpi: all ranks have ended $(($(date +%s) - start)) s after their network"
pkill -9 -f "$folder/launch" || true
