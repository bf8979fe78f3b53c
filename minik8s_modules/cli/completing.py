"""``completion``: scripts for bash, zsh and fish, which all ask ``minik8s __complete WORDS…`` what may stand next.

The answer is candidates, one a line: commands and options from the parser itself, types from the API's kinds, names
from the server. A server that does not answer within two seconds, or refuses, is no candidate and no error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import KINDS, NAMESPACE, NODE
from minik8s_modules.api.objects import name
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli.connection import connect, read_config
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers
from minik8s_modules.cli.resources import find_kind
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import find_kubeconfig

BASH = r"""# bash completion of minik8s; load with: source <(minik8s completion bash)
_minik8s() {
    local word candidate
    word="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r candidate; do
        [[ "$candidate" == "$word"* ]] && COMPREPLY+=("$candidate")
    done < <(minik8s __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == */ ]]; then compopt -o nospace; fi
}
complete -o default -F _minik8s minik8s
"""
ZSH = r"""#compdef minik8s
# zsh completion of minik8s; load with: source <(minik8s completion zsh)
_minik8s() {
    local -a candidates
    candidates=("${(@f)$(minik8s __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then compadd -a candidates; else _files; fi
}
if [ "$funcstack[1]" = "_minik8s" ]; then _minik8s "$@"; else compdef _minik8s minik8s; fi
"""
FISH = r"""# fish completion of minik8s; load with: minik8s completion fish | source
function __minik8s_complete
    set -l words (commandline -opc) (commandline -ct)
    minik8s __complete $words[2..-1] 2>/dev/null
end
complete -c minik8s -f -a '(__minik8s_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
_TYPED = frozenset(
    {"get", "describe", "why", "delete", "edit", "patch", "scale", "label", "annotate", "explain", "events"}
)
_FILES = frozenset({"-f", "--filename", "--kubeconfig", "--patch-file", "--from-file", "--from-env-file"})
Connect: TypeAlias = Callable[[argparse.Namespace], ApiClient]


def script(options: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    print(SCRIPTS[options.shell], end="")
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str], connected: Connect = connect) -> list[str]:
    """Return what may stand in place of the last of ``words`` (which may be empty), sorted."""
    *before, current = words or [""]
    found = _candidates(parser, before, current, connected)
    return sorted({each for each in found if each.startswith(current)})


def _candidates(
    parser: argparse.ArgumentParser, before: Sequence[str], current: str, connected: Connect
) -> Iterator[str]:
    at, path, rest = _descended(parser, before)
    option = before[-1] if before and before[-1].startswith("-") else ""
    action = _option(at, option)
    if action is not None and action.nargs != 0:
        yield from _values(option, action, _asked(before), connected)
    elif current.startswith("-"):
        yield from (text for each in at._actions for text in each.option_strings)  # noqa: SLF001 - nothing public lists them
    elif (commands := _commands(at)) and not rest:
        yield from (word for word in commands.choices if not word.startswith("_"))
    else:
        yield from _words(path, rest, current, _asked(before), connected)


def _descended(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.ArgumentParser, list[str], list[str]]:
    """Return the parser that the words lead to, the commands on the way, and the words after them."""
    path: list[str] = []
    rest: list[str] = []
    skip = False
    for word in words:
        commands = _commands(parser)
        if skip:
            skip = False
        elif word.startswith("-"):
            action = _option(parser, word)
            skip = action is not None and action.nargs != 0
        elif commands is not None and word in commands.choices and not rest:
            parser = commands.choices[word]
            path.append(word)
        else:
            rest.append(word)
    return parser, path, rest


def _commands(parser: argparse.ArgumentParser) -> Subparsers | None:
    for action in parser._actions:  # noqa: SLF001 - nothing public lists them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the type has no other name
            return action
    return None


def _option(parser: argparse.ArgumentParser, text: str) -> argparse.Action | None:
    if not text.startswith("-") or "=" in text:
        return None
    return next((each for each in parser._actions if text in each.option_strings), None)  # noqa: SLF001 - see above


def _asked(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that matter to what the server is asked, read leniently."""
    reader = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    reader.add_argument("--kubeconfig", default="")
    reader.add_argument("--context", default="")
    reader.add_argument("-n", "--namespace")
    options, _ = reader.parse_known_args(list(words[:-1]) + [word for word in words[-1:] if word[:1] != "-"])
    return options


def _values(option: str, action: argparse.Action, asked: argparse.Namespace, connected: Connect) -> Iterator[str]:
    if option in _FILES:
        return
    if option in {"-n", "--namespace"}:
        yield from _names("namespaces", asked, connected)
    elif option == "--context":
        yield from _contexts(asked)
    elif option in {"-o", "--output"}:
        yield from ("wide", "yaml", "json", "name", "custom-columns=", "jsonpath=")
    else:
        yield from map(str, action.choices or ())


def _contexts(asked: argparse.Namespace) -> Iterator[str]:
    try:
        config = read_config(find_kubeconfig(asked.kubeconfig))
    except UsageError:
        return
    yield from (str(entry.get("name")) for entry in config.get("contexts") or [])


def _words(
    path: Sequence[str], rest: Sequence[str], current: str, asked: argparse.Namespace, connected: Connect
) -> Iterator[str]:
    command = path[0] if path else ""
    if path[:2] in (["config", "use-context"], ["config", "delete-context"]):
        yield from _contexts(asked)
    elif command == "completion":
        yield from SCRIPTS
    elif command == "drift":
        yield from _names(NODE.plural, asked, connected)
    elif command == "logs":
        yield from _names("pods", asked, connected)
    elif path[:2] == ["create", "token"]:
        yield from _names("serviceaccounts", asked, connected)
    elif command in _TYPED:
        yield from _typed(rest, current, asked, connected)


def _typed(rest: Sequence[str], current: str, asked: argparse.Namespace, connected: Connect) -> Iterator[str]:
    if rest:
        yield from _names(rest[0], asked, connected)
    elif "/" in current:
        resource = current.partition("/")[0]
        yield from (f"{resource}/{found}" for found in _names(resource, asked, connected))
    else:
        yield from (kind.plural for kind in KINDS.all() if kind.stored)


def _names(resource: str, asked: argparse.Namespace, connected: Connect) -> list[str]:
    try:
        kind = NAMESPACE if resource == "namespaces" else find_kind(resource)
        client = connected(asked)
        return [name(obj) for obj in client.list(kind, asked.namespace or "", limit=500).items]
    except (StatusError, Minik8sError, OSError):
        return []
