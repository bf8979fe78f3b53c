"""What the configuration of the provider ``slurm`` says.

inventory: /etc/minik8s/inventory   # of Ansible; the login machine is in it
login: login1             # its host; by default the first of the group slurm_login
partition: batch
commands: /opt/slurm/bin  # of Slurm, where they are not on the user's path
completed: /var/log/slurm/jobcomp.txt   # where the user may read it
state_dir: /shared/jobs   # there, seen by compute nodes too; by default ~/.minik8s/slurm/NODE
period_s: 5               # how long it may take until a change is seen
image_command: [apptainer, exec, "docker://{image}"]   # what runs a program in an image (images.py); by default none
image_test_command: [test, -e, "/images/{image}.sif"]   # succeeds where an image is there (fetching.py)
image_pull_command: [fetch-image, "{image}"]            # fetches one
pods: 1000                # capacity for Pods
oversubscription: 1       # how often CPUs, memory and GPUs are given to Pods: what does not run waits in Slurm
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.reaching import project_dir
from minik8s_modules.virtual.providers.slurm import images
from minik8s_modules.virtual.providers.slurm.fetching import NOTHING, Fetching, faults

PLAYBOOK = "playbooks/slurm_jobs.yml"
GROUP = "slurm_login"


class Settings(NamedTuple):
    """See the top of this file."""

    inventory: Path
    login: str
    partition: str
    commands: str
    completed: str
    state_dir: str
    period_s: int
    pods: int
    oversubscription: int
    project_dir: Path
    image_command: tuple[str, ...] = ()
    fetching: Fetching = NOTHING


def read(config: InitConfig) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: a key is missing, unknown or wrong.
    """
    said = Configuration(dict(config.config), config.config_path or "the provider's configuration")
    folder = Path(config.config_path).parent if config.config_path else Path()
    found = Settings(
        inventory=(folder / said.text("inventory")).absolute(),
        login=said.text("login", ""),
        partition=said.text("partition"),
        commands=said.text("commands", ""),
        completed=said.text("completed", ""),
        state_dir=said.text("state_dir", ""),
        period_s=said.number("period_s", 5),
        pods=said.number("pods", 1000),
        oversubscription=said.number("oversubscription", 1),
        project_dir=project_dir(PLAYBOOK),
        image_command=tuple(said.texts("image_command", [])),
        fetching=Fetching(*(tuple(said.texts(f"image_{name}_command", [])) for name in Fetching._fields)),
    )
    if unknown := said.unread():
        raise ConfigurationError(f"{said.file}: {', '.join(unknown)} is not a setting of the provider slurm")
    for name in ("period_s", "pods", "oversubscription"):
        if getattr(found, name) < 1:
            raise ConfigurationError(f"{said.file}: {name} must be at least 1")
    if why := images.faults(found.image_command) or faults(found.fetching, found.image_command):
        raise ConfigurationError(f"{said.file}: {why}")
    if not found.inventory.exists():
        raise ConfigurationError(f"{said.file}: inventory {found.inventory} does not exist")
    return found
