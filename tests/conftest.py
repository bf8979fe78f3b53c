"""Lets tests import library/ as ansible.modules and the nodes' shared code as ansible.module_utils.minik8s.

Also says which tests one process runs in a row when processes share them (`make test`), which of these groups begin
first, which tests are left to `make test-nightly`, and which may have a second try (``support/second_try.py``). What a
module leaves open is told at its end (``support/left_overs.py``), and at the end of the run where its time went
(``support/repository/group_times.py``).
"""

import fcntl
import functools
import os
from pathlib import Path, PurePosixPath

import ansible.module_utils
import ansible.modules
import pytest
import xdist.remote
from xdist.scheduler import LoadScopeScheduling

from tests.support.repository.group_times import GroupTimes

pytest_plugins = ["tests.support.second_try", "tests.support.left_overs"]
# what gRPC does at each fork of a process that uses it ends one child in ten by SIGSEGV or SIGABRT, whatever that does
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
HERE = Path(__file__).parent
REPOSITORY = HERE.parent
ansible.modules.__path__.append(str(REPOSITORY / "library"))
ansible.module_utils.__path__.append(str(REPOSITORY / "minik8s_modules" / "module_utils"))
# A cluster or a lab of a whole folder carries one test at a time, and the installed cluster carries molecule's scenario
# for this machine as well. Everything else goes by module.
TOGETHER = {
    "machines": ["machines/membership", "machines/resilience"],
    "installed": [
        *(f"e2e/{room}" for room in ("faults", "workloads", "causes")),
        *(f"e2e/clients/test_{name}.py" for name in ("go_clients", "k9s", "kubernetes_core", "python_clients")),
        *(f"e2e/{module}.py" for module in ("test_streams_have_no_rights", "test_hardening_controls")),
        *(f"e2e/operators/test_{name}.py" for name in ("cert_manager_pods", "metrics_server", "prometheus_operator")),
    ],
    "built": [f"e2e/operators/test_{name}.py" for name in ("gateway_api", "controller_runtime")],
    "services": ["integration/services"],
    "virtual_machines": ["integration/virtual_machines"],
    "ansible": ["integration/ansible"],
    "lab": ["integration/lab"],
}
# Groups begin in this order: the longest first, and what computes (machines, molecule) beside what waits for pods and
# leases, so that the processors are busy and the processes end at about the same time.
ORDER = [*TOGETHER, "integration/reconcile", "machines", "molecule", "integration", "attacks", "e2e", "unit"]
# Left out of `make test`: what tries luck, what compiles other people's programs, load, minutes without a control
# plane, the lab's own faults, a whole cluster on User-Mode Linux (integration/services has pods behind IPVS there), and
# what installs a lab's machines once more: the others there begin with an installation, and CI has two on this machine.
# Also what something quicker shows: of machines/resilience, a Docker that dies (e2e/faults has one, under load), a
# control plane that dies in the middle of a change (test_control_planes has one, integration/services has rollouts),
# policies while Docker is restarted (another test there has them over a boot), and ways without a tunnel
# (integration/library has them, by the same kernel); of IPVS, what integration/services asks
# of rules by the section alone, and of Services on pods by nftables; of slow pods, how late the others are.
# Of a Slurm, what is away for as long as commands and ssh take to see it, and what the whole way over ssh shows as well
# (integration/control/test_slurm_whole.py); and Apptainer of Debian sid, which changes: test_slurm_images.py has more.
# QEMU without a processor that helps it, whose guests compute for ten seconds each, a guest's twenty starts, ten guests
# at once, and machines that wait before they start again: guests of User-Mode Linux show what the launcher promises,
# and played ones what the controllers do (integration/virtual_machines, integration/extensions).
# A second run of site.yml on several machines and of `node add`: .ci/run has the first on this machine, with the same
# roles. Real Envoys under load, for which a program of 37 MB is fetched: control/test_rolling_updates_real.py has the
# other side of their streams. Machines that come and go while one of the control plane is dead: membership has the
# coming and going, and test_control_planes what else a dead one must not stop.
# A folder's pods made once without a cluster: unit/reconcile/standalone has its decisions, others here the same modules
# and runner.
# Of molecule, all but `default` (check mode of everything): the clusters of tests/machines converge the roles, and look
# at what a reset leaves and at the lock (machines/membership), at a node's user and at a boot that nobody attends
# (machines/resilience). Others stand for the rest: integration/installation for certificates, daemons and preflight,
# integration/naming for a resolv.conf that is given back, tests/cis for rights of users and files.
NIGHTLY = [
    "integration/ansible/test_ansible_pods.py",
    "integration/apiserver/test_fuzz.py",
    "integration/apiserver/extensions/test_sample_apiserver.py",
    "integration/control/test_scale_run.py",
    "integration/control/test_upstream_workloads.py",
    "integration/executor/test_newer_ansible.py",  # another Python is fetched, and the suite runs once more
    "integration/extensions/test_virtctl.py",  # virtctl is built for minutes
    "integration/fuzz/test_mutated_manifests.py",
    "integration/fuzz/test_schemathesis.py",
    "integration/reconcile/test_mesh_real.py",
    "integration/reconcile/test_pressure_whole.py",  # waits half a minute; integration/library reads the same files
    "integration/reconcile/test_run_once.py",
    "integration/reconcile/test_upstream_nodes.py",
    "integration/reconcile/test_waves.py",
    "integration/slurm/test_slurm_apptainer.py",
    "integration/slurm/test_slurm_login_away.py",
    "integration/slurm/test_slurm_provider.py::test_a_job_s_time_limit_is_that_of_its_pod",
    "integration/slurm/test_slurm_provider.py::test_what_a_lost_node_takes_along_is_lost_or_runs_again",
    "integration/slurm/test_slurm_provider.py::test_a_job_makes_way_for_a_more_important_one",
    "integration/slurm/test_slurm_provider.py::test_while_slurm_is_away_jobs_stay_as_they_were_and_the_node_says_so",
    "integration/slurm/test_slurm_provider.py::test_by_ansible_over_ssh_nothing_of_ours_stays_on_the_login_machine",
    "integration/streams/test_slurm_logs.py",
    *(f"integration/virtual_machines/test_{name}.py" for name in ("qemu_guests", "qemu_disks", "many_starts")),
    *(f"integration/virtual_machines/test_{name}.py" for name in ("many_machines", "virtctl_guests")),
    "integration/lab",
    "integration/mesh",
    "e2e/clients/test_go_clients.py",
    *(f"e2e/operators/test_{name}.py" for name in ("cert_manager_pods", "metrics_server", "prometheus_operator")),
    "machines/resilience/test_static_stability.py",
    "machines/resilience/test_node_faults.py::test_a_restarted_docker_keeps_its_containers_running",
    "machines/resilience/test_node_faults.py::test_a_control_plane_killed_in_the_middle_of_a_change",
    "machines/resilience/test_overlay.py::test_neighbours_need_no_tunnel_where_direct_ways_are_asked_for",
    "machines/resilience/test_overlay.py::test_policies_hold_while_docker_is_restarted",
    "machines/test_ipvs_whole.py",
    "machines/test_install.py",
    "machines/test_mesh_conformance.py",  # Istio's and upstream's programs are built for minutes
    "machines/test_shards.py",
    "machines/test_control_planes.py::test_a_second_run_changes_nothing",
    "machines/test_control_planes.py::test_machines_come_and_go_while_one_of_three_is_dead",
    "machines/test_control_planes.py::test_the_first_machine_comes_back_with_an_empty_disk",
    "machines/membership/test_upgrade.py",
    "machines/membership/test_join_leave.py::test_the_command_that_added_a_machine_changes_nothing_again",
    "machines/membership/test_join_leave.py::test_a_disruption_budget_is_honoured_and_the_removal_can_be_called_off",
    "machines/membership/test_join_leave.py::test_a_machine_that_does_not_answer_is_given_up_and_its_addresses_wait",
    "integration/services/test_ipvs_cluster.py::test_an_unready_pod_leaves_and_what_was_flushed_by_hand_is_healed",
    "integration/services/test_ipvs_cluster.py::test_equal_names_in_two_namespaces_and_quick_recreation",
    "integration/services/test_ipvs_cluster.py::test_a_clock_an_hour_wrong_delays_nothing",
    "e2e/faults/test_slow_pods.py::test_a_slow_pod_delays_no_other",
    "e2e/faults/test_slow_pods.py::test_all_three_at_once_for_a_quarter_of_a_minute",
    *(f"molecule/{path.parent.name}" for path in HERE.glob("molecule/[!d]*/molecule.yml")),  # all but default
]
# Where whole clusters are late at times, on machines or as processes of this one, and pods of the Docker that all
# processes share. More than four second tries in a run are too many (`make suites`).
SECOND_TRY = [
    "e2e",
    "machines",
    "molecule",
    # real machines, packets and servers: with all cores taken, one lost packet or late answer is no finding, two are
    "integration",
    # no other attack: a race that shows in half of the runs is a finding. These send single packets between machines,
    # and what must arrive beside the attack is lost at times
    "attacks/containers/test_pods_forge_no_ipv6.py",
    "attacks/containers/test_pods_keep_no_ipv6.py",
]


# What uses the installed cluster waits while the file that this variable names is locked: `.ci/run` installs it again.
INSTALLING, ON_INSTALLED = "MINIK8S_INSTALLING", ("e2e", "molecule")


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process a group at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: xdist.remote.Producer) -> Groups:
    """Return the scheduler of `make test`; what it hands out is counted from now on."""
    config.pluginmanager.register(GroupTimes(group_of))
    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order tests by their groups, mark those of the night, and allow second tries where the command line does."""
    items.sort(key=lambda item: _place(group_of(item.nodeid)))
    for item in items:
        path = _path(item.nodeid)
        test = f"{path}::{item.nodeid.partition('::')[2].partition('[')[0]}"
        if test in NIGHTLY or _is_below(path, tuple(NIGHTLY)):
            item.add_marker(pytest.mark.nightly)
        if config.getoption("max_suite_reruns") and _is_below(path, tuple(SECOND_TRY)):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wait until the cluster is installed."""
    lock = os.environ.get(INSTALLING, "")
    if lock and _is_below(_path(item.nodeid), ON_INSTALLED):
        with Path(lock).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def group_of(nodeid: str) -> str:
    """Return the group of a test: one of ``TOGETHER``, a scenario of molecule, or the test's module."""
    return _group(_path(nodeid))


# what is asked for each of 11,900 tests, by each process, has some 500 answers


@functools.cache
def _group(path: PurePosixPath) -> str:
    if path.parts[0] == "molecule":
        return "installed" if path.name == "default" else str(path)
    for group, places in TOGETHER.items():
        if _is_below(path, tuple(places)):
            return group
    return str(path.with_suffix(""))


@functools.cache
def _is_below(path: PurePosixPath, places: tuple[str, ...]) -> bool:
    """Return whether a module is one of ``places`` or lies below one."""
    return any(path.is_relative_to(place) for place in places)


@functools.cache
def _place(group: str) -> int:
    """Return the place of a group in ``ORDER``."""
    return next(place for place, folder in enumerate(ORDER) if PurePosixPath(group).is_relative_to(folder))


def _path(nodeid: str) -> PurePosixPath:
    """Return a test's module below ``tests``; of a scenario of molecule its folder."""
    file, _, test = nodeid.partition("::")
    return _module(file, test.rpartition("[")[2].rstrip("]") if file.startswith("tests/molecule/") else "")


@functools.cache
def _module(file: str, scenario: str) -> PurePosixPath:
    path = PurePosixPath(file).relative_to("tests")
    return path.with_name(scenario) if scenario else path
