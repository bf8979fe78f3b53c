# As the modules it drives: node code, plain os functions, late imports.
# ruff: noqa: PTH100, PTH103, PTH108, PTH112, PTH115, PTH118, PTH120, PTH123, PTH208, PLC0415
"""Runs on the machine under test (a namespace here, or a lab node): passes, pods as namespaces, clients. Python 3.9.

    services_machine.py apply  < options        one pass of ``section`` (services, policies); prints its result
    services_machine.py killed < {"folder", "entries"}   kills a pass before each effect; prints how many there were
    services_machine.py pods   < {"bridge", "gateway", "pods": {name: ip}}   "second": the same of IPv6
    services_machine.py ask    < {"from": pod or "", "protocol", "address", "port", "count"}   prints who answered
    services_machine.py matrix < {"pods", "targets", "ports", "protocol"}   prints what each pod reaches
    services_machine.py cut    < {"from", "to", "address", "pass"}   what becomes of a connection that is open meanwhile
    services_machine.py each   < {"places": [[address, port]]}   prints who answered at each, over TCP
    services_machine.py many   < {"plane", "folder", "services", "each", "more"}   loads services, for benchmarks
    services_machine.py first  < {"from": pod or "", "address", "port", "count"}   times first packets over UDP
    services_machine.py down

The package of module_utils lies beside this file, as ``minik8s``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
PORTS = (8080, 9090)
CUT_PORT = 7000


def command(*argv):
    """Run a command that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stderr}")
    return done.stdout


def apply(options):
    """Run one pass and return its result with the CPU time it took."""
    sys.path.insert(0, HERE)
    from minik8s.core.section import Request, context_for, run_pass
    from minik8s.policies.policies import Policies
    from minik8s.services.services import Services

    section = {"services": Services, "policies": Policies}[options.pop("section", "services")]()
    check = options.pop("check", False)
    dying = Killer(options.pop("die_at", -1))
    request = Request("n1", state_dir=os.path.join(options.pop("folder"), "state"), **options)
    context = context_for(request, checkpoint=dying, budget_s=600.0)
    sent = count_sent()
    began = cpu_s()
    result = run_pass(section, request, context, check=check)
    result["cpu_s"], result["sent_bytes"] = cpu_s() - began, sum(sent)
    return result


class Killer:
    """A checkpoint that kills its own process before effect number ``at``."""

    def __init__(self, at):
        self._left = at

    def __call__(self, _effect):
        """Die, or count one effect."""
        if self._left == 0:
            os.kill(os.getpid(), 9)
        self._left -= 1


def count_sent():
    """Return a list that gets the size of everything this process sends to the kernel's tables."""
    from minik8s.network.wire import Wire

    sent, send = [], Wire.send

    def counting(wire, data):
        sent.append(len(data))
        send(wire, data)

    Wire.send = counting
    return sent


def killed(options):
    """Kill a pass on ``entries`` before each of its effects in turn; the next finishes, and one more changes nothing.

    Return how many there were to kill. Each pass is a process of its own that has the modules already: to start Python
    takes as long as ten passes on a lab machine.
    """
    sys.path.insert(0, HERE)
    import minik8s.policies.policies
    import minik8s.services.services  # noqa: F401

    entries = options.pop("entries")
    deaths = 0
    while True:
        _forked({**options, "entries": {}})
        if _forked({**options, "entries": entries, "die_at": deaths}) is not None:
            return deaths
        deaths += 1
        mended = _forked({**options, "entries": entries})
        assert mended["errors"] == {}, (deaths, mended)
        again = _forked({**options, "entries": entries})
        assert not again["changed"], (deaths, again)


def _forked(options):
    """Return the result of a pass in a child, None when it was killed."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            with open(theirs, "w") as target:
                json.dump(apply(options), target)
        except BaseException:  # noqa: BLE001 - the child goes no further
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(theirs)
    with open(ours) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9:
        return None
    assert status == 0, text
    return json.loads(text)


def many(options):
    """Converge on ``services`` services with ``each`` endpoints, then add some one by one; return what both took."""
    plane, each = options["plane"], options["each"]
    entries = {"dataplane": plane}
    for number in range(options["services"]):
        address = f"100.{number // 64516}.{number // 254 % 254}.{number % 254 + 1}"
        ends = [[f"10.32.{(number + at) // 250 % 250}.{(number + at) % 250 + 1}", 8080] for at in range(each)]
        entries[f"default/s{number}:80"] = {
            "protocol": "TCP",
            "address": address,
            "port": 80,
            "endpoints": ends,
        }
    entries.update(options.get("real", {}))
    began = time.perf_counter()
    whole = apply({"folder": options["folder"], "entries": entries})
    wall_s = time.perf_counter() - began
    assert not whole["errors"], whole["errors"]
    found = {"wall_s": wall_s, "cpu_s": whole["cpu_s"], "more": []}
    digest = whole["digest"]
    for number in range(options.get("more", 0)):
        entry = {"protocol": "TCP", "address": f"100.9.9.{number + 1}", "port": 80, "endpoints": []}
        entry["endpoints"] = [["10.32.0.2", 8080], ["10.32.0.3", 8080]]
        upsert = {f"default/more{number}:80": entry}
        began = time.perf_counter()
        one = apply({"folder": options["folder"], "mode": "delta", "base": digest, "upsert": upsert, "delete": []})
        assert not one["errors"], one
        wall_ms, digest = (time.perf_counter() - began) * 1000, one["digest"]
        found["more"].append({"wall_ms": wall_ms, "cpu_ms": one["cpu_s"] * 1000, "sent": one["sent_bytes"]})
    return found


def first(options):
    """Return how long each of ``count`` first packets took to be answered, in microseconds.

    Who asks and who answers share one core (``one_core``): to wake a process on another one takes four times as long
    as all the rules, and the kernel moves both as it likes.
    """
    one_core()
    times = []
    for _ in range(options["count"]):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(2)
            client.connect((options["address"], options["port"]))
            began = time.perf_counter()
            client.send(b"?")
            client.recv(100)
            times.append((time.perf_counter() - began) * 1e6)
    return times


def one_core():
    """Have this process, and those it starts from here on, run on the first core it may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def cpu_s():
    """Return the CPU seconds of this process and its children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def pods(options):
    """Make the bridge and pods behind it; each answers its name on TCP and UDP."""
    bridge, gateway = options["bridge"], options["gateway"]
    command("ip", "link", "set", "lo", "up")
    if subprocess.run(["ip", "link", "show", bridge], capture_output=True, check=False).returncode:
        command("ip", "link", "add", bridge, "type", "bridge")
        command("ip", "addr", "add", gateway + "/24", "dev", bridge)
        command("ip", "link", "set", bridge, "up")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as target:
        target.write("1")
    os.makedirs(os.path.join(HERE, "pods"), exist_ok=True)
    for name, ip in options["pods"].items():
        null, outside = subprocess.DEVNULL, "v" + name
        argv = ["unshare", "--net", sys.executable, os.path.abspath(__file__), "serve", name]
        server = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null, start_new_session=True)
        with open(os.path.join(HERE, "pods", name), "w") as target:
            target.write(str(server.pid))
        while os.readlink(f"/proc/{server.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        command("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", str(server.pid))
        command("ip", "link", "set", outside, "master", bridge, "up")
        command("bridge", "link", "set", "dev", outside, "hairpin", "on")
        for words in (
            ["addr", "add", ip + "/24", "dev", "eth0"],
            ["link", "set", "lo", "up"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", gateway],
        ):
            command(*inside(name), "ip", *words)
    if "second" in options:
        give_ipv6(bridge, **options["second"])
    for name, ip in options["pods"].items():
        while ask_one("TCP", ip, PORTS[-1]) != name:
            time.sleep(0.05)


def give_ipv6(bridge, gateway, pods):
    """Give pods an address of IPv6 as sandboxes have it: without neighbours, all goes by way of the machine."""
    with open("/proc/sys/net/ipv6/conf/all/forwarding", "w") as target:
        target.write("1")
    command("ip", "-6", "addr", "add", gateway + "/128", "dev", bridge, "nodad")
    for name, ip in pods.items():
        command("ip", "-6", "route", "replace", ip, "dev", bridge)
        command(*inside(name), "sysctl", "-w", "net.ipv6.conf.eth0.accept_redirects=0")
        for words in (
            ["addr", "add", ip + "/128", "dev", "eth0", "nodad"],
            ["route", "add", gateway, "dev", "eth0"],
            ["route", "add", "default", "via", gateway],
        ):
            command(*inside(name), "ip", "-6", *words)
    for name, ip in pods.items():
        while ask_one("TCP", ip, PORTS[-1]) != name:
            time.sleep(0.05)


def inside(name):
    """Return what runs a command in a pod."""
    with open(os.path.join(HERE, "pods", name)) as source:
        return ["nsenter", f"--net=/proc/{source.read()}/ns/net"]


def enter(name):
    """Be in a pod's network from now on; os.setns comes with Python 3.12."""
    with open(os.path.join(HERE, "pods", name)) as source:
        namespace = os.open(f"/proc/{source.read()}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")


def serve(name):
    """Answer ``name`` and the client's address on each port."""
    one_core()
    for port in PORTS:
        udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)  # of both families
        udp.bind(("::", port))
        threading.Thread(target=serve_udp, args=(udp, name), daemon=True).start()
    servers = []
    for port in PORTS:
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("::", port))
        server.listen(64)
        servers.append(server)
    for server in servers[1:]:
        threading.Thread(target=serve_tcp, args=(server, name), daemon=True).start()
    serve_tcp(servers[0], name)


def serve_tcp(server, name):
    """Answer connections for ever."""
    while True:
        connection, client = server.accept()
        with connection:
            connection.sendall(told(name, client))


def serve_udp(server, name):
    """Answer datagrams for ever."""
    while True:
        _, client = server.recvfrom(100)
        server.sendto(told(name, client), client)


def told(name, client):
    """Return what a client is answered."""
    address = client[0]
    return (name + " " + (address[7:] if address.startswith("::ffff:") else address)).encode()


def ask_one(protocol, address, port, local_port=0):
    """Return who answered: a pod's name, or "refused", "silent", or the error: its class, or the name of its number."""
    return ask_both(protocol, address, port, local_port).split(" ")[0]


def ask_both(protocol, address, port, local_port=0):
    """Return the name and which client the server saw."""
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
        client.settimeout(5 if protocol == "TCP" else 2)
        if local_port:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind(("0.0.0.0", local_port))
        try:
            client.connect((address, port))
            client.send(b"?")
            return client.recv(100).decode()
        except ConnectionRefusedError:
            return "refused"
        except OSError as error:
            if isinstance(error, (socket.timeout, TimeoutError)):
                return "silent"
            return errno.errorcode.get(error.errno or 0, "") if type(error) is OSError else type(error).__name__


def ask(options):
    """Return {who: how often, …} and the clients that were seen; from ``first_port`` on each request has its own."""
    counts: dict[str, int] = {}
    clients: set[str] = set()
    first = options.get("first_port", 0)
    for number in range(options.get("count", 1)):
        port = first + number if first else options.get("local_port", 0)
        answer = ask_both(options["protocol"], options["address"], options["port"], port)
        name, _, client = answer.partition(" ")
        counts[name] = counts.get(name, 0) + 1
        clients.add(client)
    return {"counts": counts, "clients": sorted(clients)}


def matrix(options):
    """Return ``{"<pod> <target> <port>": who answered}`` of each pod to each target, the pods side by side."""
    found = {}

    def look(pod):
        enter(pod)  # of this thread alone
        for target, address in options["targets"].items():
            for port in options["ports"]:
                found[f"{pod} {target} {port}"] = ask_one(options["protocol"], address, port)

    threads = [threading.Thread(target=look, args=(pod,)) for pod in options["pods"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def cut(options):
    """Run a pass while a connection between two pods is open; return "open", or how it ended."""
    listening, opened, applied = threading.Event(), threading.Event(), threading.Event()
    said = []

    def listen():
        enter(options["to"])
        with socket.create_server(("", CUT_PORT)) as server:
            listening.set()
            connection, _ = server.accept()
        while data := connection.recv(10):
            connection.sendall(data)

    def dial():
        enter(options["from"])
        listening.wait(20)
        with socket.create_connection((options["address"], CUT_PORT), 20) as client:
            client.sendall(b"?")
            client.recv(1)
            opened.set()
            applied.wait(60)
            try:
                client.sendall(b"?")
                said.append("open" if client.recv(1) else "closed")
            except OSError as error:
                said.append(type(error).__name__)

    threading.Thread(target=listen, daemon=True).start()
    dialling = threading.Thread(target=dial, daemon=True)
    dialling.start()
    assert opened.wait(20)
    apply(options["pass"])
    applied.set()
    dialling.join(60)
    return said[0]


def each(options):
    """Return who answered at each of ``places``."""
    return [ask_one("TCP", address, port) for address, port in options["places"]]


def down(_options):
    """End the servers; their namespaces and links go with them."""
    if not os.path.isdir(os.path.join(HERE, "pods")):
        return
    for name in os.listdir(os.path.join(HERE, "pods")):
        path = os.path.join(HERE, "pods", name)
        with open(path) as source:
            os.kill(int(source.read()), 9)
        os.unlink(path)


def main():
    """Do what the first argument says with the JSON of standard input."""
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
        return
    options = json.load(sys.stdin)
    where = options.pop("from", "") if sys.argv[1] in ("ask", "first") else ""
    if where:
        enter(where)
    commands = (apply, killed, pods, ask, matrix, cut, each, down, many, first)
    json.dump({command.__name__: command for command in commands}[sys.argv[1]](options), sys.stdout)


if __name__ == "__main__":
    main()
