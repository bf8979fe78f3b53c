"""``apply`` and ``create -f``: objects of files, each told in a line; one that is refused does not stop the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.dialect import to_canonical
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging import apply as merging
from minik8s_modules.api.merging import managed_fields
from minik8s_modules.api.merging.fieldsets import union
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, printing
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.manifests import Manifest, read_manifests
from minik8s_modules.cli.resources import name_of
from minik8s_modules.client.api import ApiClient

MANAGER = "minik8s"
# an update that lost a race is tried again on the newer object this often before the person hears of it
CONFLICT_TRIES = 5
DRY = {"server": " (server dry run)", "client": " (dry run)"}
Done = tuple[str, JsonObject]


def apply(client: ApiClient, options: argparse.Namespace) -> int:
    """Create or update every object of the files; returns 1 when one was refused, after trying all."""
    if options.server_side and options.dry_run == "client":
        raise UsageError("--server-side is decided by the server; use --dry-run=server")
    if options.force_conflicts and not options.server_side:
        raise UsageError("--force-conflicts is for --server-side; client-side apply has no conflicts to force")
    one = _apply_server_side if options.server_side else _apply_one
    return _each(client, options, one)


def create(client: ApiClient, options: argparse.Namespace) -> int:
    """Create every object of the files; returns 1 when one was refused, after trying all."""
    if not options.filename:
        raise UsageError("give --filename FILE, or what to create: `minik8s create --help` lists it")
    return _each(client, options, _create_one)


def _each(
    client: ApiClient,
    options: argparse.Namespace,
    write: Callable[[ApiClient, Manifest, argparse.Namespace], Done],
) -> int:
    """Write each object of the files and print what came of it; returns 1 when one was refused."""
    form, failed = printing.form_of(options.output), False
    manifests = read_manifests(
        options.filename, options.namespace, recursive=options.recursive, dialect=options.dialect
    )
    found = []
    for manifest in manifests:
        name = objects.name(manifest.object) or str(manifest.object["metadata"].get("generateName", ""))
        try:
            verb, obj = write(client, manifest, options)
        except (StatusError, UsageError) as error:
            failed = True
            output.fail(error, f"{manifest.where}: {name_of(manifest.kind, name)}")
            continue
        found.append((manifest.kind, obj))
        if form.is_table:
            told = name_of(manifest.kind, objects.name(obj) or name)
            print(f"{told} {verb}{DRY.get(options.dry_run, '')}", flush=True)
    if found and not form.is_table:
        shown = [(kind, printing.printable(obj)) for kind, obj in found]
        print(printing.documents(form, shown, single=len(manifests) == 1))
    return int(failed)


def is_dry(options: argparse.Namespace) -> bool:
    """Return whether the server must store nothing."""
    return str(options.dry_run) == "server"


def _create_one(client: ApiClient, manifest: Manifest, options: argparse.Namespace) -> Done:
    return create_object(client, manifest.kind, manifest.object, options)


def create_object(client: ApiClient, kind: Kind, obj: JsonObject, options: argparse.Namespace) -> Done:
    """Create an object as the options say; returns ``created`` and the object."""
    if options.dry_run == "client":
        return "created", obj
    made = client.create(kind, obj, dry_run=is_dry(options), field_manager=options.field_manager)
    return "created", made


def _apply_one(client: ApiClient, manifest: Manifest, options: argparse.Namespace) -> Done:
    kind, dry_run, manager = manifest.kind, is_dry(options), options.field_manager
    wanted = to_canonical(kind, manifest.object)
    name, namespace = _named(kind, wanted), objects.namespace(wanted)
    for _ in range(CONFLICT_TRIES):
        try:
            live = client.get(kind, name, namespace)
        except NotFound:
            if options.dry_run == "client":
                return "created", wanted
            try:
                made = client.create(kind, merging.annotated(wanted), dry_run=dry_run, field_manager=manager)
            except AlreadyExists:
                continue
            return "created", made
        merged = merging.next_object(kind, live, wanted)
        if options.dry_run == "client":
            return "unchanged" if merged == live else "configured", merged
        try:
            after = client.update(kind, merged, dry_run=dry_run, field_manager=manager)
        except Conflict:
            continue
        return _verb(live, after), after
    raise UsageError(f"{kind.plural} {name!r} was changed by others {CONFLICT_TRIES} times meanwhile; apply again")


def _named(kind: Kind, obj: JsonObject) -> str:
    name = objects.name(obj)
    if not name:
        raise UsageError(f"{kind.kind} name not found; apply needs metadata.name (`create` takes generateName, too)")
    return name


def _verb(live: JsonObject, after: JsonObject) -> str:
    same = managed_fields.same(after, live)
    return "unchanged" if same else "configured"


# --- server-side apply ----------------------------------------------------------------------------


def _apply_server_side(client: ApiClient, manifest: Manifest, options: argparse.Namespace) -> Done:
    kind, wanted = manifest.kind, to_canonical(manifest.kind, manifest.object)
    name, namespace, manager = _named(kind, wanted), objects.namespace(wanted), options.field_manager or MANAGER
    if not is_dry(options):
        migrate(client, kind, name, namespace, manager)
    try:
        applied = client.patch(
            kind,
            name,
            namespace,
            {**wanted, "apiVersion": kind.api_version, "kind": kind.kind},
            patch_type="apply",
            dry_run=is_dry(options),
            field_manager=manager,
            force=options.force_conflicts,
        )
    except StatusError as error:
        causes: list[Mapping[str, str]] = error.details.get("causes") or []
        if any(cause.get("reason") == "FieldManagerConflict" for cause in causes):
            advice = "take the fields over with --force-conflicts, leave them out of the file, or agree on their values"
            raise UsageError(f"{error.message}\n  {advice}") from error
        raise
    return "serverside-applied", applied


def migrate(client: ApiClient, kind: Kind, name: str, namespace: str, manager: str) -> None:
    """Make what ``manager`` owns by client-side apply its own by server-side apply, so that fields can be given up.

    As kubectl does (client-go ``util/csaupgrade``): the Update entry of the manager is merged into its Apply entry.
    """
    for _ in range(CONFLICT_TRIES):
        try:
            live = client.get(kind, name, namespace)
        except NotFound:
            return
        managers = managed_fields.managers_of(live)
        mine = [who for who in managers if who[0] == manager and who[1] == "Update" and not who[3]]
        if not mine or not merging.last_applied(live):
            return
        me = managed_fields.identity(managed_fields.Writer(manager), "Apply", kind.api_version)
        for who in mine:
            entry = managers.pop(who)
            if entry.api_version == kind.api_version:
                before = managers.get(me, entry._replace(fields={}))
                managers[me] = entry._replace(fields=union(before.fields, entry.fields))
        meta = {"resourceVersion": objects.resource_version(live), "managedFields": managed_fields.encode(managers)}
        try:
            client.patch(kind, name, namespace, {"metadata": meta}, field_manager=manager)
        except Conflict:
            continue
        return
