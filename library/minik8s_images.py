#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: images built on the machine from static programs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_images
short_description: Images built on the machine from static programs
description:
  - Imports each declared image into Docker unless one with the same content is there.
  - The content is the program's bytes and the recipe; its digest is in the image's label C(minik8s.io/content).
options:
  busybox:
    description: A statically linked busybox.
    type: path
    default: /bin/busybox
  images:
    description: The images.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name with tag., type: str, required: true}
      aliases: {description: Further names with tags., type: list, elements: str, default: []}
      applets: {description: Names under C(/bin). Empty means all., type: list, elements: str, default: []}
      command: {description: What a container runs by default., type: list, elements: str, required: true}
      environment: {description: Environment of containers., type: dict, default: {}}
      program:
        description:
          - A statically linked program that is the whole image, as C(/<name of the file>) and as its command.
          - If the file is missing, the image is made of busybox as the other suboptions say.
        type: path
      tools:
        description: Programs of the machine by their names under C(/bin); the libraries they are linked to come along.
        type: dict
        default: {}
      files: {description: Files of the machine by their paths in the image., type: dict, default: {}}
      folders:
        description: Folders of the machine by their paths in the image; all files below them come along.
        type: dict
        default: {}
      labels: {description: Labels of an image made of its own program., type: dict, default: {}}
attributes:
  check_mode: {description: Says which images would be built., support: full}
  diff_mode: {description: Shows the content digests., support: full}
  idempotent: {description: An image with the same content is left alone., support: full}
extends_documentation_fragment: [minik8s_node.docker]
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The pause image is there
  minik8s_images:
    images:
      - name: minik8s/pause:1
        applets: [sleep]
        command: [/bin/sleep, "2147483647"]
        program: /var/lib/minik8s/pause
        labels: {minik8s.io/prober: "1"}
"""

RETURN = r"""
built:
  description: Names of the images that were built (in check mode, would be built).
  returned: always
  type: list
  elements: str
  sample: ["minik8s/pause:1"]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.docker import Docker, DockerError
from ansible.module_utils.minik8s.core.paths import DOCKER_SOCKET
from ansible.module_utils.minik8s.install.images import (
    LABEL,
    Recipe,
    archive,
    changes,
    import_image,
    linked,
    name_image,
    plan_aliases,
    plan_images,
)

SPEC = {
    "name": {"type": "str", "required": True},
    "aliases": {"type": "list", "elements": "str", "default": []},
    "applets": {"type": "list", "elements": "str", "default": []},
    "command": {"type": "list", "elements": "str", "required": True},
    "environment": {"type": "dict", "default": {}},
    "program": {"type": "path"},
    "tools": {"type": "dict", "default": {}},
    "files": {"type": "dict", "default": {}},
    "folders": {"type": "dict", "default": {}},
    "labels": {"type": "dict", "default": {}},
}


def all_applets(module: AnsibleModule) -> tuple[str, ...]:
    """Return the names that the machine's busybox answers to; none where it is not installed yet."""
    if not Path(module.params["busybox"]).exists():
        return ()
    _code, output, _error = module.run_command([module.params["busybox"], "--list"], check_rc=True)
    return tuple(sorted(name for name in output.split() if name != "busybox"))


def recipe_of(entry: dict[str, Any], everything: tuple[str, ...]) -> Recipe:
    """Return one entry of the options as a value."""
    environment = _pairs(entry["environment"])
    if own_program(entry):
        path = Path(entry["program"]).name
        return Recipe(entry["name"], (), (f"/{path}",), environment, path, _pairs(entry["labels"]))
    return Recipe(entry["name"], tuple(entry["applets"]) or everything, tuple(entry["command"]), environment)


def own_program(entry: dict[str, Any]) -> bool:
    """Return whether the entry's image is made of a program of its own, and not of busybox."""
    return bool(entry["program"]) and Path(entry["program"]).exists()


def gathered(module: AnsibleModule, entry: dict[str, Any]) -> dict[str, bytes]:
    """Return what an image holds of the machine; in check mode without what is not installed yet."""
    sources = {f"bin/{name}": path for name, path in entry["tools"].items()}
    for path in entry["tools"].values():
        if Path(path).exists() or not module.check_mode:
            sources |= {each.lstrip("/"): each for each in linked(module.run_command(["ldd", path], check_rc=True)[1])}
    sources |= {path.lstrip("/"): source for path, source in entry["files"].items()}
    for path, folder in entry["folders"].items():
        found = [each for each in Path(folder).rglob("*") if each.is_file()]
        sources |= {f"{path.strip('/')}/{each.relative_to(folder)}".lstrip("/"): str(each) for each in found}
    there = {path: Path(source) for path, source in sources.items()}
    return {path: source.read_bytes() for path, source in there.items() if source.exists() or not module.check_mode}


def _pairs(given: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in sorted(given.items()))


def present_digest(docker: Docker, name: str) -> str | None:
    """Return the content label of image ``name``, None when there is no image, empty when it has no label."""
    image = docker.image(name)
    return None if image is None else str(((image.get("Config") or {}).get("Labels") or {}).get(LABEL, ""))


def ids_of(docker: Docker, aliases: dict[str, list[str]]) -> dict[str, str]:
    """Return the ids of the images that have these names and further names."""
    names = [name for name, more in aliases.items() if more for name in (name, *more)]
    return {name: str(image["Id"]) for name in names if (image := docker.image(name)) is not None}


def read_program(module: AnsibleModule) -> bytes:
    """Return the bytes of busybox; in check mode it need not be installed yet."""
    path = Path(module.params["busybox"])
    return b"" if module.check_mode and not path.exists() else path.read_bytes()


def main() -> None:
    """Observe, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            **DOCKER_SOCKET,
            "busybox": {"type": "path", "default": "/bin/busybox"},
            "images": {"type": "list", "elements": "dict", "required": True, "options": SPEC},
        },
        supports_check_mode=True,
    )
    socket_path = module.params["docker_socket"]
    docker, everything = Docker(socket_path), all_applets(module)
    recipes = {entry["name"]: recipe_of(entry, everything) for entry in module.params["images"]}
    wanted: dict[str, str] = {}
    found: dict[str, str | None] = {}
    built: list[str] = []
    named: dict[str, str] = {}
    try:
        busybox = read_program(module)
        own = {
            each["name"]: Path(each["program"]).read_bytes() for each in module.params["images"] if own_program(each)
        }
        more = {each["name"]: gathered(module, each) for each in module.params["images"]}
        wanted = {name: recipe.digest(own.get(name, busybox), more[name]) for name, recipe in recipes.items()}
        reachable = Path(socket_path).exists() or not module.check_mode
        found = {name: present_digest(docker, name) if reachable else None for name in recipes}
        built = plan_images(wanted, found)
        aliases = {each["name"]: each["aliases"] for each in module.params["images"]}
        named = plan_aliases(aliases, ids_of(docker, aliases) if reachable else {}, built)
        if not module.check_mode:
            for name in built:
                recipe = recipes[name]
                data = archive(recipe, own.get(name, busybox), more[name])
                import_image(docker, recipe, data, changes(recipe, wanted[name]))
            for alias, name in named.items():
                name_image(docker, name, alias)
    except (OSError, DockerError) as error:
        module.fail_json(msg=f"cannot build the images: {error}")
    before = "".join(f"{name} {found[name]}\n" for name in built)
    after = "".join(f"{name} {wanted[name]}\n" for name in built)
    after += "".join(f"{alias} is {name}\n" for alias, name in named.items())
    module.exit_json(changed=bool(built or named), built=built, diff={"before": before, "after": after})


if __name__ == "__main__":
    main()
