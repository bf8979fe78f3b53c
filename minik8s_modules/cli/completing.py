"""``completion``: scripts for bash, zsh and fish, which all ask ``minik8s __complete WORDS…`` what may stand next.

The answer is candidates, one a line: of our own commands from their parser, all else from kubectl's own completion.
kubectl asks as well, as ``kubectl_complete-minik8s WORDS…``, for ``kubectl minik8s``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from minik8s_modules.cli import kubectl
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers
from minik8s_modules.cli.original.translating import scan

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
_LIKE = {"why": ("get",), "drift": ("get", "nodes")}
"""The words of kubectl whose objects stand behind our own commands."""
_SHARED = frozenset({"-n", "--namespace", "--context", "--kubeconfig"})
_PATIENCE_S = 5.0


def script(options: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    print(SCRIPTS[options.shell], end="")
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last of ``words`` (which may be empty), sorted."""
    *before, current = words or [""]
    found = _candidates(parser, before, current)
    return sorted({each for each in found if each.startswith(current)})


def _candidates(parser: argparse.ArgumentParser, before: Sequence[str], current: str) -> Iterator[str]:
    at, path, rest = _descended(parser, before)
    option = before[-1] if before and before[-1].startswith("-") else ""
    action = _option(at, option)
    commands = _commands(at) if not rest or [*path, *rest] == ["help"] else None
    if action is not None and action.nargs != 0:
        yield from map(str, action.choices or ())
        if option in _SHARED:
            yield from _asked(["get", "pods", option], current)
    elif current.startswith("-") and path:
        yield from (text for each in at._actions for text in each.option_strings)  # noqa: SLF001 - nothing public lists them
    elif path and path[0] in _LIKE:
        where = [raw for word in scan(before) if word.option in _SHARED for raw in word.raw]
        yield from _asked([*where, *_LIKE[path[0]], *rest], current)
    elif commands is not None:
        yield from commands.choices
    elif path:
        yield from (str(choice) for each in at._actions if not each.option_strings for choice in each.choices or ())  # noqa: SLF001 - see above
    if not path and action is None:
        yield from _asked(before, current)


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


def _asked(before: Sequence[str], current: str) -> Iterator[str]:
    """Yield kubectl's candidates: one a line, a description behind a tab; what has a colon is for its script."""
    try:
        lines = kubectl.lines_of(["__complete", *before, current], _PATIENCE_S)
    except UsageError:
        return
    yield from (line.partition("\t")[0] for line in lines if not line.startswith(":"))
