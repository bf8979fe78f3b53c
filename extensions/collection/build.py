#!/usr/bin/env python3
"""Builds the collection ``minik8s.cluster`` from the parts of this repository: ``build.py FOLDER`` prints the archive.

What differs from a checkout, all of it made here:

- modules import their shared code under the collection's name;
- plugins and documentation have full names (``extends_documentation_fragment``);
- fragments that are computed from the types of entries are written out, since ansible-doc finds no types there;
- roles take playbooks and sources from the Python package (``minik8s_repository``), as a machine of the control plane
  runs them under their short names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NAME = "minik8s.cluster"
ABOUT = {
    "namespace": "minik8s",
    "name": "cluster",
    "readme": "README.md",
    "authors": ["the minik8s authors"],
    "description": "A Kubernetes that is driven by Ansible: its modules, plugins, roles and playbooks",
    "license": ["Apache-2.0"],
    "tags": ["kubernetes", "cluster", "containers", "infrastructure"],
    "dependencies": {},
}
"""``galaxy.yml``, but for the version."""
PLUGINS = ("action", "connection", "inventory")
"""The others serve the reconciler alone, which runs from its own share."""
COMPUTED = ("minik8s_entries", "minik8s_warm")
"""Modules of documentation whose texts follow from types of ours, and from plugins of Ansible's."""
SHARED = "ansible.module_utils.minik8s"
FRAGMENT = re.compile(r"\b(minik8s_node|minik8s_entries|minik8s_warm)\b(?=[.,\]]|$)")
REFERENCE = re.compile(r"M\((minik8s_\w+)\)")
AUTHOR = re.compile(r"(?m)^author: .*$")
LICENSE = "validate-modules:missing-gplv3-license # Apache-2.0"
ORDER = "validate-modules:import-before-documentation # as everywhere in minik8s"
IGNORED = {
    "modules": (LICENSE,),
    "connection": (LICENSE, ORDER),
    "inventory": (LICENSE, ORDER),
    "modules/minik8s_etcd_members.py": ("replace-urlopen # open_url reads proxies and netrc; etcd is asked without",),
}
"""What ``ansible-test sanity`` says of files of a kind, or of one file, and why it stays."""
CORES = ("2.19", "2.20", "2.21")
"""Of ansible-core, whose ``ansible-test`` looks for a list of its own."""
FROM_PACKAGE = "{{ lookup('ansible.builtin.pipe', ansible_playbook_python ~ ' -m minik8s_modules.base.release') }}"
sys.path.insert(0, str(REPOSITORY))


def in_collection(text: str) -> str:
    """Return a module's or plugin's source as it stands in the collection."""
    text = text.replace(f"from {SHARED}", f"from ansible_collections.{NAME}.plugins.module_utils.minik8s")
    text = AUTHOR.sub("author: the minik8s authors (!UNKNOWN)", REFERENCE.sub(rf"M({NAME}.\1)", text))
    lines, fragments = [], False
    for line in text.split("\n"):
        begins = line.startswith("extends_documentation_fragment:")
        fragments = begins or (fragments and line.startswith("  - "))
        lines.append(FRAGMENT.sub(rf"{NAME}.\1", line) if fragments else line)
    return "\n".join(lines)


def written_out(source: str) -> str:
    """Return a module of fragments whose texts are computed, with the texts themselves."""
    space: dict[str, object] = {}
    exec(compile(source, "fragments", "exec"), space)  # noqa: S102 - our own source
    fragments = {name: text for name, text in vars(space["ModuleDocFragment"]).items() if name.isupper()}
    texts = {name: yaml.safe_dump(_without_versions(yaml.safe_load(str(text)))) for name, text in fragments.items()}
    body = "".join(f'\n    {name} = r"""\n{text}"""\n' for name, text in texts.items())
    head = '"""Written out from what minik8s computes."""\n\n'
    return f"{head}from __future__ import annotations\n\n\nclass ModuleDocFragment:\n{body}"


def _without_versions(data: object) -> object:
    """Return documentation without the versions of Ansible that had an option first, which are none of a collection."""
    if isinstance(data, dict):
        return {key: _without_versions(value) for key, value in data.items() if key != "version_added"}
    return [_without_versions(each) for each in data] if isinstance(data, list) else data


def ignored(plugins: Path) -> str:
    """Return the file that tells ``ansible-test sanity`` what stays."""
    lines = []
    for place, entries in IGNORED.items():
        files = [plugins / place] if place.endswith(".py") else sorted((plugins / place).glob("*.py"))
        lines += [f"plugins/{path.relative_to(plugins)} {entry}\n" for path in files for entry in entries]
    return "".join(lines)


def copy(source: Path, target: Path) -> None:
    """Copy a file of Python, as it stands in the collection."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(in_collection(source.read_text(encoding="utf-8")), encoding="utf-8")


def lay_out(target: Path, version: str) -> None:
    """Write the collection's files."""
    shutil.copytree(HERE, target, ignore=shutil.ignore_patterns("build.py", "__pycache__"))
    (target / "galaxy.yml").write_text(yaml.safe_dump({**ABOUT, "version": version}), encoding="utf-8")
    for name in ("roles", "playbooks"):
        shutil.copytree(REPOSITORY / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for program in target.glob("roles/*/files/*.py"):  # roles name the interpreter that runs them
        text = program.read_text(encoding="utf-8")
        program.write_text(text.partition("\n")[2] if text.startswith("#!") else text, encoding="utf-8")
        program.chmod(0o644)
    shutil.copy(REPOSITORY / "LICENSE", target)
    package = REPOSITORY / "minik8s_modules"
    for module in sorted((REPOSITORY / "library").glob("*.py")):
        copy(module, target / "plugins" / "modules" / module.name)
    for kind in (*PLUGINS, "doc_fragments"):
        for plugin in sorted((package / "plugins" / kind).glob("*.py")):
            copy(plugin, target / "plugins" / kind / plugin.name)
    for name in COMPUTED:
        text = (package / "plugins" / "doc_fragments" / f"{name}.py").read_text(encoding="utf-8")
        (target / "plugins" / "doc_fragments" / f"{name}.py").write_text(written_out(text), encoding="utf-8")
    shutil.copytree(
        package / "module_utils" / "minik8s", target / "plugins" / "module_utils" / "minik8s",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    sanity = target / "tests" / "sanity"
    sanity.mkdir(parents=True)
    for core in CORES:
        (sanity / f"ignore-{core}.txt").write_text(ignored(target / "plugins"), encoding="utf-8")
    defaults = target / "roles" / "minik8s" / "defaults" / "main.yml"
    found = defaults.read_text(encoding="utf-8")
    changed = re.sub(r"(?m)^minik8s_repository: .*$", f'minik8s_repository: "{FROM_PACKAGE}"', found)
    if found == changed:
        sys.exit(f"{defaults} has no minik8s_repository any more: say here how roles find their sources")
    defaults.write_text(changed, encoding="utf-8")


def main() -> None:
    """Build the archive into the folder that is given."""
    from minik8s_modules import __version__  # noqa: PLC0415 - found by the path above

    folder = Path(sys.argv[1]).resolve()
    program = Path(sys.executable).with_name("ansible-galaxy")
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "ansible_collections", *NAME.split("."))
        source.parent.mkdir(parents=True)
        lay_out(source, __version__)
        argv = [str(program), "collection", "build", "--force", "--output-path", str(folder), str(source)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
    sys.stdout.write(f"{folder / (NAME.replace('.', '-') + '-' + __version__ + '.tar.gz')}\n")


if __name__ == "__main__":
    main()
