"""``create`` and its generators, declared; what they make is in ``generating``."""

from __future__ import annotations

import argparse

from minik8s_modules.cli import generating, writing
from minik8s_modules.cli.options import (
    Subparsers,
    add,
    add_dry_run,
    add_filename,
    add_manager,
    add_namespace,
    add_result,
)


def create_commands(commands: Subparsers) -> None:
    """Declare create."""
    parser = add(
        commands, "create", writing.create, "create objects, from files or from options",
        usage="create [options] (-f FILE | TYPE NAME [options])",
        examples="""
        minik8s create -f web.yml
        minik8s create configmap settings --from-literal mode=fast --from-file=app.conf
        minik8s create deployment web --image caddy:2 --replicas 3
        minik8s create job pi --image perl:5 -- perl -Mbignum=bpi -wle 'print bpi(100)'
        minik8s create token robot --duration 1h""",
    )  # fmt: skip
    add_filename(parser, required=False, dialect=True)
    add_namespace(parser)
    _output(parser)
    types = parser.add_subparsers(title="types", metavar="TYPE")
    _generator(types, "namespace", generating.namespace, "a namespace", aliases=("ns",))
    _generator(types, "serviceaccount", generating.service_account, "a service account", aliases=("sa",))
    _data(_generator(types, "configmap", generating.config_map, "a config map", aliases=("cm",)))
    _secrets(types)
    _workloads(types)
    _roles(types)
    _token(types)


def _output(parser: argparse.ArgumentParser) -> None:
    add_dry_run(parser, "client", "server")
    add_manager(parser)
    add_result(parser)


def _generator(
    types: Subparsers, name: str, build: generating.Build, about: str, *, aliases: tuple[str, ...] = (), above: str = ""
) -> argparse.ArgumentParser:
    tail = about.partition(" [")[1:][1]
    usage = f"create {above}{name} NAME [options]{' [' + tail if tail else ''}"
    parser = add(types, name, generating.generate, f"create {about}", usage=usage)
    for alias in aliases:
        types._name_parser_map[alias] = parser  # noqa: SLF001 - declared aliases would stand in the help, too
    parser.set_defaults(build=build)
    parser.add_argument("name_word", metavar="NAME")
    add_namespace(parser)
    _output(parser)
    for action in parser._actions:  # noqa: SLF001 - nothing public lists them
        if action.dest in {"namespace", "dry_run", "field_manager", "output"}:
            action.default = argparse.SUPPRESS  # what was given before the type holds, too
    return parser


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from-literal", action="append", default=[], metavar="KEY=VALUE", help="a value (repeatable)")
    parser.add_argument(
        "--from-file", action="append", default=[], metavar="[KEY=]PATH", help="a file, or all of a folder (repeatable)"
    )
    parser.add_argument(
        "--from-env-file", action="append", default=[], metavar="FILE", help="lines of KEY=VALUE (repeatable)"
    )


def _secrets(types: Subparsers) -> None:
    parser = add(
        types, "secret", writing.create, "create a secret", usage="create secret (generic | tls | docker-registry) ..."
    )
    forms = parser.add_subparsers(title="types", required=True, metavar="TYPE")
    generic = _generator(forms, "generic", generating.secret, "a secret of files, texts or folders", above="secret ")
    _data(generic)
    generic.add_argument("--type", default="Opaque", metavar="TYPE", help="its type (default: %(default)s)")
    tls = _generator(forms, "tls", generating.tls_secret, "a secret with a certificate and its key", above="secret ")
    tls.add_argument("--cert", required=True, metavar="FILE", help="PEM")
    tls.add_argument("--key", required=True, metavar="FILE", help="PEM")
    login = _generator(forms, "docker-registry", generating.docker_secret, "a login of a registry", above="secret ")
    login.add_argument("--docker-server", default="https://index.docker.io/v1/", metavar="URL")
    login.add_argument("--docker-username", required=True, metavar="NAME")
    password = login.add_mutually_exclusive_group(required=True)
    password.add_argument("--docker-password", default="", metavar="TEXT", help="others see it in the process list")
    password.add_argument("--docker-password-file", default="", metavar="FILE", help="the same, from a file")
    login.add_argument("--docker-email", default="", metavar="ADDRESS")


def _workloads(types: Subparsers) -> None:
    deployment = _generator(
        types, "deployment", generating.deployment, "a deployment [-- COMMAND]", aliases=("deploy",)
    )
    deployment.add_argument(
        "--image", action="append", required=True, metavar="IMAGE", help="a container each (repeatable)"
    )
    deployment.add_argument("-r", "--replicas", type=int, default=1, metavar="N", help="default: %(default)s")
    deployment.add_argument("--port", type=int, default=0, metavar="PORT", help="the port it listens on")
    job = _generator(types, "job", generating.job, "a job [-- COMMAND]")
    job.add_argument("--image", required=True, metavar="IMAGE")
    cron = _generator(types, "cronjob", generating.cron_job, "a cron job [-- COMMAND]", aliases=("cj",))
    cron.add_argument("--image", required=True, metavar="IMAGE")
    cron.add_argument("--schedule", required=True, metavar="CRON", help="as in '*/5 * * * *'")
    cron.add_argument("--restart", default="OnFailure", choices=("OnFailure", "Never"), help="default: %(default)s")


def _roles(types: Subparsers) -> None:
    for name, kind in (("role", "Role"), ("clusterrole", "ClusterRole")):
        parser = _generator(types, name, generating.role, f"a {kind} with one rule")
        parser.set_defaults(role_kind=kind)
        parser.add_argument("--verb", action="append", required=True, metavar="VERB,...")
        parser.add_argument("--resource", action="append", default=[], metavar="TYPE[/SUB],...")
        parser.add_argument("--resource-name", action="append", default=[], metavar="NAME", help="these objects alone")
        if kind == "ClusterRole":
            parser.add_argument("--non-resource-url", action="append", default=[], metavar="PATH")
    for name, kind in (("rolebinding", "RoleBinding"), ("clusterrolebinding", "ClusterRoleBinding")):
        parser = _generator(types, name, generating.role_binding, f"a {kind}")
        parser.set_defaults(binding_kind=kind)
        if kind == "RoleBinding":
            parser.add_argument("--role", default="", metavar="NAME", help="a Role of the namespace")
        parser.add_argument("--clusterrole", default="", metavar="NAME", help="a ClusterRole")
        for subject, told in (("user", "NAME"), ("group", "NAME"), ("serviceaccount", "NAMESPACE:NAME")):
            parser.add_argument(f"--{subject}", action="append", default=[], metavar=told)


def _token(types: Subparsers) -> None:
    parser = add(
        types, "token", generating.token, "print a new token of a service account", usage="create token NAME [options]"
    )
    parser.add_argument("name_word", metavar="NAME", help="the service account")
    add_namespace(parser)
    add_result(parser)
    parser.add_argument(
        "--audience", action="append", default=[], metavar="NAME", help="who is to accept it (repeatable)"
    )
    parser.add_argument("--duration", default="", metavar="TIME", help="how long it is valid, as in 10m or 1h")
    parser.add_argument(
        "--bound-object-kind", default="", choices=("", "Pod", "Secret"), metavar="Pod|Secret", help="ends with it"
    )
    parser.add_argument("--bound-object-name", default="", metavar="NAME")
    parser.add_argument("--bound-object-uid", default="", metavar="UID")
