"""A Pod that becomes a unit of systemd on a host: its words are no directives, no shell, and no other user's rights.

What no program can be given (a NUL, bytes of a Secret that are no UTF-8) ends nothing but its own Pod.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import USER, NoUnit, declared_unit
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.schema import with_defaults
from minik8s_modules.module_utils.minik8s.units.declared import SCHEMA, Units
from minik8s_modules.module_utils.minik8s.units.systemd import Systemd
from minik8s_modules.module_utils.minik8s.units.texts import environment_text, unit_text
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.entries import asked as asked_job

HOSTILE = [
    "+/bin/sh",
    "a\nUser=root",
    "a\r\nExecStartPre=+/bin/touch {mark}",
    "$(touch {mark})",
    "`touch {mark}`",
    "'; touch {mark}; '",
    '"; touch {mark}; "',
    "${IFS}",
    "%n %u %%",
    "\\",
    "a\\\nExecStartPre=/bin/touch {mark}",
    "; /bin/touch {mark}",
    "{{ lookup('pipe', 'touch {mark}') }}",
    "\u2028[Service]",
    "-e",
]
UID = "4ab1c2d3-0000-4000-8000-000000000001"
ALLOWED = {
    "Description", "After", "StartLimitIntervalSec", "Type", "ExecStart", "EnvironmentFile", "User", "WorkingDirectory",
    "Restart", "RestartSec", "KillMode", "TimeoutStopSec", "NoNewPrivileges", "CPUAccounting", "MemoryAccounting",
    "WantedBy",
}  # fmt: skip


def pod(**changes: Any) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "command": ["true"], **changes.pop("container", {})}
    made = new_pod("one", restartPolicy="Always", containers=[container])
    made["metadata"]["annotations"] = changes.pop("annotations", {})
    return made


@pytest.mark.parametrize("form", HOSTILE)
def test_words_and_values_reach_the_program_as_they_are(form: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    words = form.replace("{mark}", str(mark))
    env = [{"name": "WORD", "value": words}]
    container = {"command": ["printf", "<%s>"], "args": [words, "$(WORD)"], "env": env}
    asked = declared_unit(pod(container=container), ["app"])
    entry = with_defaults(asked.entry, SCHEMA)
    Units(Systemd()).check_entry(UID, asked.entry)
    lines = [line for line in unit_text(entry, "/var/lib/x").split("\n") if line and line[0] not in "#["]
    assert {line.partition("=")[0] for line in lines} == ALLOWED
    assert [line for line in lines if line.startswith(("User", "ExecStart"))] == [
        "ExecStart=/var/lib/x/program", "User=app",
    ]  # fmt: skip
    script = tmp_path / "program"
    script.write_bytes(entry["script"].encode())
    done = subprocess.run(
        ["sh", str(script)], env={"PATH": "/usr/bin:/bin", "WORD": words}, capture_output=True, check=True
    )
    assert done.stdout.decode() == f"<{words}><{words}>"
    assert not mark.exists()
    assert read_back(environment_text({"WORD": words, "NEXT": "x"})) == {"WORD": words, "NEXT": "x"}


def read_back(text: str) -> dict[str, str]:
    """Return variables as systemd reads them within double quotes (systemd.exec(5), src/basic/env-file.c)."""
    found, at = {}, 0
    while at < len(text):
        name, _, rest = text[at:].partition('="')
        value, index = "", 0
        while rest[index] != '"':
            if rest[index] == "\\":
                index += 1
                value += rest[index] if rest[index] in '"\\`$' else "\\" + rest[index]
            else:
                value += rest[index]
            index += 1
        found[name] = value
        assert rest[index + 1] == "\n"
        at += len(name) + 2 + index + 2
    return found


@pytest.mark.parametrize("form", ["a\0b", b"\xff".decode("utf-8", "surrogateescape")])
@pytest.mark.parametrize("where", ["env", "command", "args"])
def test_what_no_program_can_be_given_is_refused_before_a_machine_hears_of_it(form: str, where: str) -> None:
    said: Any = [{"name": "WORD", "value": form}] if where == "env" else ["true", form]
    made = pod(container={where: said})
    with pytest.raises(NoUnit, match=f"{where}.* NUL|{where}.*UTF-8") as refused:
        declared_unit(made, ["app"])
    assert form not in str(refused.value)
    made["spec"]["restartPolicy"] = "Never"
    with pytest.raises(InvalidInput, match=f"{where}.* NUL|{where}.*UTF-8"):
        asked_job(made, "batch", NoResources())


@pytest.mark.parametrize("form", HOSTILE)
def test_a_folder_is_one_line_and_no_other_user_is_taken(form: str) -> None:
    """Refused, or one directive."""
    for user in (form, "root", "app,root"):
        with pytest.raises(NoUnit, match="runs units as app"):
            declared_unit(pod(annotations={USER: user}), ["app"])
    try:
        asked = declared_unit(pod(container={"workingDir": f"/srv/{form}"}), ["app"])
    except NoUnit:
        with pytest.raises(KeyFault):
            Units(Systemd()).check_entry(UID, {**declared_unit(pod(), ["app"]).entry, "directory": f"/srv/{form}"})
        return
    text = unit_text(with_defaults(asked.entry, SCHEMA), "/var/lib/x")
    assert f"\nWorkingDirectory=/srv/{form.replace('%', '%%')}\n" in text
    assert "\n" not in form
