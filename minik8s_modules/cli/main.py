"""The ``minik8s`` command: kubectl, and what kubectl cannot do, such as plan, drift, why, simulate, nodes and tokens.

    minik8s WORDS ──own command?──▶ commands.py, its parser and its modules
                  └──else──▶ kubectl.py: the original's forms translated, then kubectl takes over

``kubectl minik8s WORDS`` (``kubectl-minik8s`` on PATH) comes here, too.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli import kubectl, output
from minik8s_modules.cli.original import translating

if TYPE_CHECKING:
    import argparse

OWN = frozenset(
    {
        "advise", "canary", "completion", "drift", "init", "inject", "mesh", "node", "plan", "reconciler", "simulate",
        "token", "trace", "virtual-node", "why",
    }
)  # fmt: skip
_ROLLING_UPDATES = frozenset({"rollingupdate", "rollingupdates", "ru"})
"""Types whose ``rollout`` kubectl does not know."""
_GROUPS = (["mesh"], ["node"], ["token"])
COMPLETE = "__complete"
_ASKED_BY_OPTION = (("apply", "--plan", "plan", ("--apply",)), ("get", "--why", "why", ("--one-line",)))


def own_words(words: Sequence[str]) -> list[str] | None:
    """Return the command line for our own parser; None where it is kubectl's."""
    verb = translating.verb_of(words)
    for kubectls, option, own, more in _ASKED_BY_OPTION:
        if verb == kubectls and option in words:
            return [*_options_last(translating.with_verb(words, kubectls, own, option)), *more]
    if verb == "help" and (len(words) == 1 or words[1] in OWN or list(words[1:]) == ["rollout"]):
        return [*words[1:], "--help"]
    named = [word.text for word in translating.scan(words) if not word.option]
    if verb == "rollout" and named[2:] and named[2].partition("/")[0].lower() in _ROLLING_UPDATES:
        return _options_last(words)
    if (helped := _explained(words)) is not None:
        return helped
    return _options_last(words) if verb in OWN else None if verb else list(words)


def _explained(words: Sequence[str]) -> list[str] | None:
    """Return what prints the help that a command line without anything to do gets, as kubectl's does."""
    named = [word.text for word in translating.scan(words) if not word.option]
    others = [word.option for word in translating.scan(words) if word.option not in {"", *translating.GLOBAL}]
    return [*named, "--help"] if not others and (not named or named in _GROUPS) else None


def _options_last(words: Sequence[str]) -> list[str]:
    """Return the command line with -n behind the command, where the command's own parser takes or refuses it."""
    known = list(translating.scan(words))
    before = list(itertools.takewhile(lambda word: word.option, known))
    late = [word for word in before if word.option in translating.NAMESPACE]
    kept = [word for at, word in enumerate(known) if at >= len(before) or word not in late]
    return [raw for word in (*kept, *late) for raw in word.raw]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line of an own command; exits with 2 when it is wrong.

    Names may stand on either side of options, as in ``why pod -n shop web``, which argparse alone does not take.
    """
    from minik8s_modules.cli.commands import build_parser  # noqa: PLC0415 - kubectl's commands start without our own

    parser = build_parser()
    given, rest = parser.parse_known_args(argv)
    unknown = [word for word in rest if word.startswith("-")]
    if unknown or (rest and not hasattr(given, "words")):
        given.refuse(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        given.words = [*given.words, *rest]
    given.argv = list(argv)
    given.namespace_given = getattr(given, "namespace", None) is not None
    return given


def _run_own(argv: Sequence[str]) -> int:
    from minik8s_modules.cli.connection import connect  # noqa: PLC0415 - see parse

    given = parse(argv)
    client = None if given.offline else connect(given)
    return int(given.command(client, given))


def _hand_over(words: list[str]) -> int:
    """Have kubectl do it; what is wrong with the objects of a ``describe`` and the picture of a rollout are ours."""
    verb = translating.verb_of(words)
    if verb == "describe":
        from minik8s_modules.cli.causes.why import tell_causes  # noqa: PLC0415 - see parse

        words = kubectl.translated(words)
        tell_causes(words)
    if verb == "rollout" and sys.stdout.isatty():
        from minik8s_modules.cli import rollout  # noqa: PLC0415 - see parse

        if rollout.is_drawn(words):
            return rollout.status(words)
    return kubectl.hand_over(words)


def _run(words: list[str]) -> int:
    if words[:1] == [COMPLETE]:
        from minik8s_modules.cli import commands, completing  # noqa: PLC0415 - see parse

        print("\n".join(completing.candidates(commands.build_parser(), words[1:])))
        return 0
    own = own_words(words)
    return _hand_over(words) if own is None else _run_own(own)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, unless kubectl has taken over."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except (StatusError, Minik8sError) as error:
        output.fail(error)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the interpreter would complain at its end that nobody reads
        return 0
    except KeyboardInterrupt:
        return 130


def complete() -> int:
    """Answer kubectl, which asks ``kubectl_complete-minik8s WORDS…`` what may stand next."""
    return main([COMPLETE, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
