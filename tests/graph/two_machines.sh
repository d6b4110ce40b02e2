#!/bin/sh
# Joins two network namespaces by a veth pair, and runs a program on one rank in each:
#     unshare --user --map-root-user --net --mount sh two_machines.sh MPIEXEC PYTHON PROGRAM ...
set -e
mount -t tmpfs none /run
ip netns add one
ip netns add two
ip link add left netns one type veth peer name right netns two
ip -n one addr add 10.77.0.1/24 dev left
ip -n two addr add 10.77.0.2/24 dev right
for name in one two; do ip -n $name link set lo up; done
ip -n one link set left up
ip -n two link set right up
cat > /run/enter <<'X'
#!/bin/sh
# What the launcher runs in the place of ssh: enter -x HOST COMMAND ...
while [ "${1#-}" != "$1" ]; do shift; done
[ "$1" = 10.77.0.1 ] && name=one || name=two
shift
exec ip netns exec $name sh -c "$*"
X
chmod +x /run/enter
mpiexec=$1
shift
exec ip netns exec one "$mpiexec" -launcher ssh -launcher-exec /run/enter -hosts 10.77.0.1,10.77.0.2 -iface left -n 2 "$@"
