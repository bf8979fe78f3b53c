"""The command ``minik8s-store``: snapshots of the cluster's store, their restoration, and keys of secrets at rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from minik8s_modules.base import config
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.store import snapshots, tools
from minik8s_modules.store.at_rest import secrets_command
from minik8s_modules.store.snapshots import Adjusted
from minik8s_modules.store.tools import Member
from minik8s_modules.store.wire.connection import Tls

CONFIGURATION = Path("/etc/minik8s/apiserver.yml")
RESTORE = """\
Makes DIR, a data directory for etcd, from a snapshot. On the way the revision is raised by a billion, so that
no resourceVersion comes twice; older watches are told to list again; and the cluster epoch is raised, so that
no node obeys a reconciler from before. FILE itself is not changed, and a DIR that is not empty is refused.

With one etcd: stop it, move its data directory away, restore, start it.
With several: run `snapshot adjust FILE ADJUSTED` once, then on each machine
`snapshot restore --adjusted ADJUSTED --data-dir DIR --name ... --initial-cluster ...
--initial-advertise-peer-urls ...`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 with the reason on standard error."""
    options = build_parser().parse_args(argv)
    act: Callable[[argparse.Namespace], None] = options.act
    try:
        act(options)
    except (Minik8sError, OSError) as error:
        sys.stderr.write(f"minik8s-store: {error}\n")
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    parser = argparse.ArgumentParser(prog="minik8s-store", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    secrets_command.add_parser(commands, CONFIGURATION)
    snapshot = commands.add_parser("snapshot", help="save, inspect, adjust and restore snapshots")
    verbs = snapshot.add_subparsers(required=True, metavar="VERB")
    save = _verb(verbs, "save", _save, "write a snapshot of the running store to FILE (holds all Secrets)")
    save.add_argument("--config", type=Path, default=CONFIGURATION, help="API server's file (%(default)s)")
    _verb(verbs, "status", _status, "print what the snapshot FILE contains")
    adjust = _verb(verbs, "adjust", _adjust, "write FILE, adjusted for a restoration, to ADJUSTED")
    adjust.add_argument("adjusted", type=Path, metavar="ADJUSTED")
    _add_epoch(adjust)
    restore = _verb(verbs, "restore", _restore, "make a data directory for etcd from the snapshot FILE", RESTORE)
    restore.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="the directory to make")
    restore.add_argument("--owner", default="", metavar="USER", help="owner of DIR: etcd's user")
    restore.add_argument("--adjusted", action="store_true", help="FILE comes from `snapshot adjust`")
    _add_epoch(restore)
    for field, default in Member._field_defaults.items():
        restore.add_argument(f"--{field.replace('_', '-')}", default=default, help="as etcd's option")
    return parser


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    act: Callable[[argparse.Namespace], None],
    summary: str,
    description: str = "",
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=description or summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.set_defaults(act=act)
    return parser


def _add_epoch(parser: argparse.ArgumentParser) -> None:
    text = "make the cluster epoch at least N (the greatest any node reports); it is raised to the clock's in any case"
    parser.add_argument("--epoch", type=int, default=0, metavar="N", help=text)


def _save(options: argparse.Namespace) -> None:
    settings = config.load(options.config)
    tls = None
    if settings.has("etcd.ca"):
        tls = Tls(*(Path(settings.text(f"etcd.{name}")) for name in Tls._fields))
    found = snapshots.save(settings.texts("etcd.endpoints"), tls, options.file)
    _say(f"saved {options.file}: revision {found.revision}, {found.keys} versions of keys, {found.size_bytes} bytes")
    _say("it holds every Secret of the cluster: keep it where only administrators can read it")


def _status(options: argparse.Namespace) -> None:
    found = tools.status(options.file)
    _say(f"{options.file}: revision {found.revision}, {found.keys} versions of keys, {found.size_bytes} bytes")


def _adjust(options: argparse.Namespace) -> None:
    report = snapshots.adjust(options.file, options.adjusted, epoch_at_least=options.epoch)
    _tell(report)
    _say(f"next: copy {options.adjusted} to every etcd machine and run there, with etcd stopped:")
    _say("  minik8s-store snapshot restore --adjusted FILE --data-dir DIR --name NAME --initial-cluster ...")


def _restore(options: argparse.Namespace) -> None:
    member = Member(*(getattr(options, field) for field in Member._fields))
    if options.adjusted:
        snapshots.place(options.file, options.data_dir, member, owner=options.owner)
    else:
        report = snapshots.restore(
            options.file, options.data_dir, member, owner=options.owner, epoch_at_least=options.epoch
        )
        _tell(report)
    _say(f"made {options.data_dir} from {options.file}, owned by user id {options.data_dir.stat().st_uid}")
    _say("next: start etcd with this data directory; API servers, controllers and reconcilers reconnect by themselves")


def _tell(report: Adjusted) -> None:
    _say(f"resourceVersions: {report.revision_before} in the snapshot; they continue after {report.revision}")
    _say(f"cluster epoch: {report.epoch_before or 'none'} in the snapshot, now {report.epoch}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
