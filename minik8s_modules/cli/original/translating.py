"""From the original MiniK8s' command lines to kubectl's. Pure: what must be asked or read comes in as functions.

    describe|delete TYPE -p NAMESPACE -n NAME     →  TYPE NAME -n NAMESPACE
    delete TYPE -n NAME                           →  TYPE NAME, where kubectl could only say that a name is missing
    get job|hpa                                   →  with legacyjobs …, where there are objects of the original
    get|describe|delete job|hpa NAME              →  legacyjob/NAME …, where only the original's kind has that name
    hpas                                          →  hpa
    -f FILE, --dialect original                   →  a file with objects as Kubernetes spells them

Everything else goes on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from minik8s_modules.cli.errors import UsageError

_CONNECTION = frozenset({
    "--as", "--as-group", "--as-uid", "--as-user-extra", "--cache-dir", "--certificate-authority",
    "--client-certificate", "--client-key", "--cluster", "--context", "--kubeconfig", "--request-timeout", "--server",
    "-s", "--tls-server-name", "--token", "--user",
})  # fmt: skip
_NOT_OURS = (_CONNECTION | {"--insecure-skip-tls-verify"}) - {
    "--kubeconfig", "--context", "--request-timeout", "--cache-dir",
}  # fmt: skip
NAMESPACE = frozenset({"-n", "--namespace"})
GLOBAL = NAMESPACE | _CONNECTION | {"--insecure-skip-tls-verify"}
"""Options that kubectl takes before and after every command."""
_FILES = frozenset({"-f", "--filename"})
_SELECTING = NAMESPACE | _FILES | {"-l", "--selector", "--field-selector", "-k", "--kustomize"}
_CHOOSING = _CONNECTION | _SELECTING | {"-A", "--all-namespaces", "-R", "--recursive", "--insecure-skip-tls-verify"}
# options whose value is the next word; of the verbs below, every one that could hide a type or a name
_VALUED = _CONNECTION | _SELECTING | {
    "-o", "--output", "-L", "--label-columns", "--sort-by", "--subresource", "--template", "--raw", "--chunk-size",
    "--grace-period", "--timeout", "--field-manager", "-p", "--name", "--dialect", "--revision", "--type",
    "--patch", "--patch-file", "-v", "--v", "--profile", "--profile-output", "--log-flush-frequency", "--vmodule",
    "--username", "--password",
}  # fmt: skip
_NAMED_BY_OPTIONS = frozenset({"describe", "delete"})
_LOOKED_UP = frozenset({"get", "describe", "delete"})
_OF_FILES = frozenset({
    "annotate", "apply", "autoscale", "create", "delete", "describe", "diff", "edit", "expose", "get", "label", "patch",
    "replace", "rollout", "scale", "set", "wait",
})  # fmt: skip
_WHERE = _CONNECTION | NAMESPACE | {"-A", "--all-namespaces", "-l", "--selector"}
_CHOSEN_OTHERWISE = _FILES | {
    "-l", "--selector", "--field-selector", "-k", "--kustomize", "--all", "-A", "--all-namespaces", "--raw", "--name",
    "-h", "--help",
}  # fmt: skip
_WATCHING = frozenset({"-w", "--watch", "--watch-only"})
_ALIASES = {"hpas": "hpa"}
_LEGACY = {
    **dict.fromkeys(("job", "jobs"), ("job.batch", "legacyjob", "job")),
    **dict.fromkeys(
        ("hpa", "hpas", "horizontalpodautoscaler", "horizontalpodautoscalers"),
        ("horizontalpodautoscaler.autoscaling", "legacyhorizontalpodautoscaler", "horizontalpodautoscaler"),
    ),
}
"""Kubernetes' kind, the original's resource of that name, and how ``-o name`` prints that one."""


class Word(NamedTuple):
    """One argument, with its value: ``option`` is empty for a word that stands for itself."""

    option: str
    text: str
    raw: tuple[str, ...]


Names = Callable[[Sequence[str]], Collection[str]]
"""Returns the lines that kubectl prints for arguments; none where it fails."""


class Rewritten(Protocol):
    """Returns where kubectl is to read a file from."""

    def __call__(self, path: str, *, recursive: bool, dialect: str) -> str:
        """Return ``path`` itself where nothing in it needs a translation."""
        ...


def scan(argv: Sequence[str]) -> Iterator[Word]:
    """Yield the words of a command line; what stands behind ``--`` is one of them."""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":  # kubectl's verbs with objects take nothing behind it
            yield Word("--", "", (word, *rest))
            return
        if not word.startswith("-") or word == "-":
            yield Word("", word, (word,))
            continue
        short = not word.startswith("--")
        if short and word[2:].isalpha() and word[:2] not in _VALUED:  # -Rf is -R -f
            rest.insert(0, f"-{word[2:]}")
            word = word[:2]
        option, equals, value = word.partition("=")
        if short and word[2:] and word[:2] in _VALUED:  # -nNAME, -n=NAME
            yield Word(word[:2], word[2:].removeprefix("="), (word,))
        elif option in _VALUED and not equals and rest:
            value = rest.pop(0)
            yield Word(option, value, (word, value))
        else:
            yield Word(option, value, (word,))


def verb_of(argv: Sequence[str]) -> str:
    """Return the command, empty where options stand alone."""
    return next((word.text for word in scan(argv) if not word.option), "")


def with_verb(argv: Sequence[str], old: str, new: str, flag: str) -> list[str]:
    """Return the command line with another command, and without the flag that asked for it."""
    words = [word for word in scan(argv) if word.option != flag]
    at = words.index(_plain(old))
    return [raw for word in (*words[:at], _plain(new), *words[at + 1 :]) for raw in word.raw]


def own_connection(argv: Sequence[str]) -> bool:
    """Return whether the cluster is named in a way that our own client follows, too."""
    return not any(word.option in _NOT_OURS for word in scan(argv))


def as_get(argv: Sequence[str], verbs: int = 1) -> list[str]:
    """Return the ``get`` of what a command is about: its words but the first ``verbs``, and what chooses objects."""
    words = list(scan(argv))
    named = [word.text for word in words if not word.option][verbs:]
    return ["get", *named, *(raw for word in words if word.option in _CHOOSING for raw in word.raw)]


def translated(argv: Sequence[str], names: Names, rewritten: Rewritten) -> list[str]:
    """Return the arguments for kubectl.

    Raises:
        UsageError: ``--dialect`` is none, or has no file; or a file cannot be translated.
    """
    words = list(scan(argv))
    verb = verb_of(argv)
    if verb not in _OF_FILES:
        return list(argv)
    if verb in _NAMED_BY_OPTIONS:
        words = _named(words)
    if verb in _LOOKED_UP:
        words = _typed(words, names)
    return [raw for word in _filed(words, rewritten) for raw in word.raw]


def _plain(text: str) -> Word:
    return Word("", text, (text,))


def _named(words: list[Word]) -> list[Word]:
    """Turn ``TYPE -p NAMESPACE -n NAME`` into ``TYPE NAME -n NAMESPACE``."""
    spaces = [word.text for word in words if word.option == "-p"]
    originals = {"-p", "--name"} | (NAMESPACE if spaces or _is_nameless(words) else set())
    named = [word.text for word in words if word.option in originals - {"-p"}]
    kept = [word for word in words if word.option not in originals]
    return [*kept, *map(_plain, named), *(Word("-n", space, ("-n", space)) for space in spaces[-1:])]


def _is_nameless(words: Sequence[Word]) -> bool:
    """Return whether it is a ``delete`` of one type whose objects nothing names, so that its -n can be but a name."""
    named = [word.text for word in words if not word.option]
    chosen = any(word.option in _CHOSEN_OTHERWISE for word in words)
    return named[:1] == ["delete"] and len(named) == 2 and not chosen and not {"/", ","} & {*named[1]}  # noqa: PLR2004


def _typed(words: list[Word], names: Names) -> list[Word]:
    """Give types kubectl's names, and names that only an object of the original has its type."""
    verb, *rest = (word.text for word in words if not word.option)
    if not rest:
        return words
    if verb == "get" and len(rest) == 1 and rest[0].lower() in _LEGACY:
        listed = _plain(_kinds_there(rest[0], words, names))
        return [word if word.option or word.text != rest[0] else listed for word in words]
    slashed = any("/" in text for text in rest)
    pairs = [text.partition("/")[::2] for text in rest] if slashed else [(rest[0], name) for name in rest[1:]]
    asked = [f"{each}/{name}" for kind, name in pairs if kind.lower() in _LEGACY for each in _LEGACY[kind.lower()][:2]]
    there: Collection[str] = ()
    if asked:
        where = [raw for word in words if word.option in _CONNECTION | NAMESPACE for raw in word.raw]
        there = names(["get", *asked, "--ignore-not-found", "-o", "name", *where])
    originals = {pair: _LEGACY[pair[0].lower()][1] for pair in pairs if _is_original(pair, there)}
    if originals:
        wanted = [f"{originals.get(pair, _aliased(pair[0]))}/{pair[1]}" for pair in pairs]
    else:
        wanted = [*map(_aliased, rest)] if slashed else [_aliased(rest[0]), *rest[1:]]
    if wanted == rest:
        return words
    return [_plain(verb), *(word for word in words if word.option), *map(_plain, wanted)]


def _kinds_there(text: str, words: Sequence[Word], names: Names) -> str:
    """Return the types to list for one that the original has, too: those of which there is something."""
    own, original, printed = _LEGACY[text.lower()]
    where = [raw for word in words if word.option in _WHERE for raw in word.raw]
    there = names(["get", f"{own},{original}", "--ignore-not-found", "-o", "name", *where])
    if not any(line.startswith(f"{printed}/") for line in there):
        return _aliased(text)
    watched = any(word.option in _WATCHING and word.text != "false" for word in words)  # kubectl watches one type
    return f"{own},{original}" if any(line.startswith(f"{own}/") for line in there) and not watched else original


def _is_original(pair: tuple[str, str], there: Collection[str]) -> bool:
    """Return whether there is an object of the original with that name, and none of Kubernetes."""
    own, _, printed = _LEGACY.get(pair[0].lower(), ("", "", ""))
    return bool(own) and f"{printed}/{pair[1]}" in there and f"{own}/{pair[1]}" not in there


def _aliased(text: str) -> str:
    kinds, slash, name = text.partition("/")
    return ",".join(_ALIASES.get(kind.lower(), kind) for kind in kinds.split(",")) + slash + name


def _filed(words: list[Word], rewritten: Rewritten) -> list[Word]:
    """Have files rewritten that are the original's."""
    dialects = [word.text for word in words if word.option == "--dialect"]
    if not set(dialects) <= {"original", "kubernetes"}:
        raise UsageError(f"--dialect is original or kubernetes, not {dialects[0]!r}")
    if dialects and not any(word.option in _FILES for word in words):
        raise UsageError("--dialect says how the files of -f are read; give -f FILE")
    recursive = any(word.option in {"-R", "--recursive"} and word.text != "false" for word in words)
    found: list[Word] = []
    for word in words:
        if word.option in _FILES:
            paths = [
                rewritten(path, recursive=recursive, dialect="".join(dialects[-1:])) for path in word.text.split(",")
            ]
            found += (Word("-f", path, ("-f", path)) for path in paths)
        elif word.option != "--dialect":
            found.append(word)
    return found
