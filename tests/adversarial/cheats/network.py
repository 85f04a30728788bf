# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: E5 E7
# tries: reach anything over a network
# verdict: passed
# never: CONNECTED
import socket

for _kind in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    try:
        _socket = socket.socket(_kind, socket.SOCK_DGRAM)
        print("CONNECTED", _kind)
    except OSError:
        pass
for _path in ("/run/munge/munge.socket.2", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
    try:
        socket.socket(socket.AF_UNIX).connect(_path)
        print("CONNECTED", _path)
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
