"""What a service manager is told about a program, and when."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.install.confinement import Confinement
from minik8s_modules.module_utils.minik8s.install.daemons import (
    Daemon,
    DaemonState,
    DaemonStep,
    plan_daemons,
    render,
    restart_key,
)

AWKWARD = ("/bin/x", "a b", "100%", 'say "hi"', "it's", "$HOME", "back\\slash")


@pytest.mark.parametrize("manager", ["systemd", "supervisor"])
def test_a_program_with_its_declared_definition_is_left_alone(manager: str) -> None:
    assert (
        plan_daemons(
            {"a": "text"},
            ["b"],
            {"a": DaemonState("text", running=True), "b": DaemonState(None, running=False)},
            manager,
        )
        == []
    )


@pytest.mark.parametrize(
    ("manager", "steps"),
    [("systemd", [DaemonStep("define", "a"), DaemonStep("restart", "a")]), ("supervisor", [DaemonStep("define", "a")])],
)
def test_a_changed_definition_is_a_restart(manager: str, steps: list[DaemonStep]) -> None:
    assert plan_daemons({"a": "new"}, [], {"a": DaemonState("old", running=True)}, manager) == steps


@pytest.mark.parametrize("manager", ["systemd", "supervisor"])
def test_what_a_program_reads_again_is_a_signal_to_it_while_it_runs(manager: str) -> None:
    daemon = Daemon("a", "about", ("/bin/x",))
    old, new, other = (render(manager, daemon, *keys) for keys in (("1", "1"), ("1", "2"), ("2", "2")))
    assert plan_daemons({"a": new}, [], {"a": DaemonState(old, running=True)}, manager) == [
        DaemonStep("define", "a"),
        DaemonStep("reload", "a"),
    ]
    restart = [DaemonStep("define", "a"), *([DaemonStep("restart", "a")] if manager == "systemd" else [])]
    assert plan_daemons({"a": other}, [], {"a": DaemonState(old, running=True)}, manager) == restart
    assert plan_daemons({"a": new}, [], {"a": DaemonState(old, running=False)}, manager) == restart
    without = render(manager, daemon, "1")
    assert plan_daemons({"a": old}, [], {"a": DaemonState(without, running=True)}, manager) == restart


def test_a_stopped_program_is_started() -> None:
    assert plan_daemons({"a": "text"}, [], {"a": DaemonState("text", running=False)}, "systemd") == [
        DaemonStep("start", "a")
    ]


def test_programs_go_in_the_reverse_order() -> None:
    found = {
        "a": DaemonState("x", running=True),
        "b": DaemonState(None, running=True),
        "c": DaemonState(None, running=False),
    }
    assert plan_daemons({}, ["a", "b", "c"], found, "systemd") == [DaemonStep("remove", "b"), DaemonStep("remove", "a")]


def test_supervisor_reads_back_the_very_arguments() -> None:
    text = render("supervisor", Daemon("d", "a % sign", AWKWARD, user="u"), "key")
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes=";")
    parser.read_string(text)
    command = shlex.split(parser["program:d"]["command"].replace("%%", "%"))
    confined = ["--umask=0077", "--no-new-privs", "--capabilities=", "--private-mounts"]
    assert tuple(command[9:]) == AWKWARD
    assert command[:9] == ["/usr/local/lib/minik8s/launch", "d", "u", "20", "group", *confined]


def test_what_prepares_a_start_keeps_its_words() -> None:
    daemon = Daemon("d", "about", ("/bin/x",), prepare=AWKWARD)
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes=";")
    parser.read_string(render("supervisor", daemon, "key"))
    option = shlex.split(parser["program:d"]["command"].replace("%%", "%"))[5]
    assert option.startswith("--prepare=")
    assert tuple(shlex.split(option.partition("=")[2])) == AWKWARD
    lines = render("systemd", daemon, "key").splitlines()
    command = render("systemd", Daemon("d", "about", AWKWARD), "key").splitlines()
    (escaped,) = (line.partition("=")[2] for line in command if line.startswith("ExecStart="))
    assert [line for line in lines if line.startswith("Exec")] == [f"ExecStartPre=+{escaped}", 'ExecStart="/bin/x"']


def test_systemd_words_are_escaped() -> None:
    text = render("systemd", Daemon("d", "about", AWKWARD), "key")
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert line == r'ExecStart="/bin/x" "a b" "100%%" "say \"hi\"" "it' + r"""'s" "$$HOME" "back\\slash\""""[:-2] + '"'


def test_an_exception_opens_what_it_names_and_nothing_else() -> None:
    strict = set(render("systemd", Daemon("d", "about", ("/bin/x",)), "key").splitlines())
    asking = Confinement(exceptions={"netlink": "asks for addresses"})
    text = render("systemd", Daemon("d", "about", ("/bin/x",), confinement=asking), "key")
    opened = {"# netlink: asks for addresses", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"}
    assert set(text.splitlines()) - strict == opened


@pytest.mark.parametrize("manager", ["systemd", "supervisor"])
@pytest.mark.parametrize(
    "daemon",
    [
        Daemon("d", "two\nlines", ("/bin/x",)),
        Daemon("d", "about", ("/bin/x", "a\nExecStart=/bin/y")),
        Daemon("d", "about", ("/bin/x", "nul\0")),
        Daemon("d", "about", ("/bin/x",), prepare=("/bin/y", "a\nExecStart=/bin/z")),
        Daemon("d", "about", ("/bin/x",), environment=(("A", "b\nc"),)),
        Daemon("d]\n[program:e", "about", ("/bin/x",)),
        Daemon("../d", "about", ("/bin/x",)),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(exceptions={"common-umask": "why\nUser=root"})),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(exceptions={"common-umask": " "})),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(exceptions={"a-wish": "because"})),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(writes=("/a /",))),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(capabilities=("CAP_SYS_ADMIN",))),
        Daemon("d", "about", ("/bin/x",), confinement=Confinement(peers=("localhost\nUser=root",))),
    ],
)
def test_text_that_would_break_out_is_refused(manager: str, daemon: Daemon) -> None:
    with pytest.raises(ValueError, match="must"):
        render(manager, daemon, "key")


def test_the_restart_key_follows_the_contents(tmp_path: Path) -> None:
    file = tmp_path / "configuration"
    missing = restart_key([str(file)])
    file.write_text("a")
    first = restart_key([str(file)])
    file.write_text("b")
    assert len({missing, first, restart_key([str(file)])}) == 3
    file.write_text("a")
    assert restart_key([str(file)]) == first
