#!/usr/bin/python
"""Jobs in the queue of a Slurm: the thin shell of module_utils/minik8s/slurm/jobs.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_slurm_jobs
short_description: Jobs in the queue of a Slurm
description:
  - Submits each declared job once, follows it, and cancels what is not declared any more. Run it on a machine that has
    Slurm's commands, as the user who is to have the jobs; it needs no right of root, and leaves no program running.
  - Only the user's jobs whose comment names O(node) are looked at or changed. One C(squeue) tells of all of them; a
    second call is made where some have ended.
  - A job is looked for before it is submitted, so a run may be killed anywhere, and an answer of Slurm be lost. Where
    Slurm does not answer the module fails, and changes nothing; the jobs go on.
  - Each job has a folder O(state_dir)C(/jobs/<uid>), which compute nodes must see under the same path. What it prints
    is in the file C(output) there.
options:
  node:
    description: Whose jobs these are, such as the name of the virtual node. Other names' jobs are left alone.
    type: str
    required: true
  mode:
    description:
      - With V(full), O(entries) is the whole declared set; what is not in it is cancelled, and its folder deleted.
      - With V(delta), O(upsert) and O(delete) change the set whose digest is O(base). All jobs are looked at.
    type: str
    choices: [full, delta]
    default: full
  base:
    description: Digest of the set a delta builds on. Another one there answers RV(base_mismatch).
    type: str
  delete:
    description: Keys a delta removes.
    type: list
    elements: str
  token:
    description: Fencing token, epoch and revision. Who has seen a newer one answers RV(fenced) and changes nothing.
    type: list
    elements: int
  blob:
    description:
      - 'Environments and secret files of jobs, as base64 of JSON
        C({"<uid>": {"environment": {"<name>": "<value>"}, "files": {"<path>": "<base64>"}}}). Files are put below
        C(work).'
      - Values stand in files of mode 0600 alone; they are in no command line, result or diff.
    type: str
  state_dir:
    description: Folder of the jobs' folders and of what is declared; by default C(~/.minik8s/slurm/) and O(node).
    type: path
  commands:
    description: Folder of Slurm's commands, where they are not on the user's path.
    type: path
    default: ""
  completed:
    description: Slurm's file of completed jobs (C(JobCompLoc) with C(jobcomp/filetxt)), where the user may read it. It
      tells how jobs ended that nobody followed for longer than C(MinJobAge).
    type: path
    default: ""
  partition:
    description: Also return what this partition has.
    type: str
    default: ""
  seen:
    description:
      - RV(seen) of an earlier result. Where RV(status) would say the same again, it is left empty.
      - A delta that changes nothing then ends once C(squeue) has told what it told before, without a look at jobs'
        folders; with O(partition) it looks at them, too.
    type: str
    default: ""
  results:
    description:
      - 'Jobs whose files are wanted, as lists of patterns by uid: C({"<uid>": ["*.csv", "plots/*.png"]}). A pattern is
        relative to C(work), and each of its parts matches as in a shell.'
      - Links are not followed, and only plain files are returned, at most 200 with 1 MiB together.
    type: dict
extends_documentation_fragment: [minik8s_entries.slurm_jobs]
attributes:
  check_mode:
    description: Reports the same steps and diff, and changes nothing.
    support: full
  diff_mode:
    description: The diff shows the jobs that would come and go. Values of O(blob) are never in it.
    support: full
  idempotent:
    description: A second run submits nothing again, also where the first was killed.
    support: full
author: the minik8s authors
"""

EXAMPLES = r"""
- name: One job
  minik8s_slurm_jobs:
    node: gpu
    entries:
      4ab1c2d3-0000-4000-8000-000000000001:
        name: default/hello
        partition: batch
        script: |
          #!/bin/sh
          echo "hello from $(hostname)"
        memory_mb: 10
        minutes: 5

- name: What the partition has, and how the jobs are; nothing changes where nothing ended
  minik8s_slurm_jobs:
    node: gpu
    mode: delta
    base: "{{ result.digest }}"
    partition: batch
"""

RETURN = r"""
section:
  description: Name of the section.
  type: str
  returned: always
digest:
  description: Digest of the declared set as it now stands there.
  type: str
  returned: always
steps:
  description: What was done (in check mode, what would be done), in order for each key.
  type: list
  elements: dict
  returned: always
  sample:
    - {action: submit, key: 4ab1c2d3-0000-4000-8000-000000000001, detail: default/hello to batch}
differences:
  description: The diff by key, each with its facets before and after; null where there is nothing.
  type: dict
  returned: in check mode
status:
  description:
    - Of each declared job its name, id, and state in Slurm's words, or C(LOST) for a job that was submitted and that
      nobody knows any more; null before it is submitted. Times are UTC.
    - Of a job that has ended also C(code), the program's exit code and the signal that ended it, C(message), what it
      wrote to its termination log, and C(tail), the end of its output.
  type: dict
  returned: always
  sample:
    4ab1c2d3-0000-4000-8000-000000000001:
      {name: default/hello, id: 17, state: PENDING, reason: Resources, submitted: '2026-11-28T08:05:40Z'}
seen:
  description: Digest of the status, for O(seen).
  type: str
  returned: always
unchanged:
  description: Whether the status is left empty because it is what was seen.
  type: bool
  returned: always
partition:
  description: Nodes, those that take jobs, their CPUs, memory and GPUs, the time limit, and states with their numbers.
  type: dict
  returned: with O(partition)
  sample: {name: batch, nodes: 2, usable: 2, cpus: 4, memory_mb: 2000, gpus: 4, up: true, states: {idle: 2},
    time_limit: '1:00:00'}
result_files:
  description: Of each job of O(results), C(files), base64 by path, or C(error) with a reason, a message and whether it
    is C(temporary). Jobs for which this answer has no room are left out; ask again.
  type: dict
  returned: with O(results)
  sample: {4ab1c2d3-0000-4000-8000-000000000001: {files: {out.csv: YSxiCg==}}}
state_dir:
  description: Where the jobs' folders are.
  type: str
  returned: always
errors:
  description: Reason and message of each key that could not be realized; the others are.
  type: dict
  returned: always
due:
  description: Keys that need another run after C(after_s) seconds, and why.
  type: list
  elements: dict
  returned: always
held:
  description: Always empty; sections of nodes have it.
  type: list
  elements: dict
  returned: always
base_mismatch:
  description: Whether a delta did not fit; nothing was changed then.
  type: bool
  returned: always
fenced:
  description: Whether a newer token was seen; nothing was changed then.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.faults import NodeFault
from ansible.module_utils.minik8s.core.section import Request, context_for
from ansible.module_utils.minik8s.core.shell import ARGUMENTS as SECTION
from ansible.module_utils.minik8s.core.shell import REQUIRED_IF
from ansible.module_utils.minik8s.slurm import quiet
from ansible.module_utils.minik8s.slurm.folders import home_of
from ansible.module_utils.minik8s.slurm.queue import Slurm
from ansible.module_utils.minik8s.slurm.results import collect

THREADS = 4  # commands at once: a controller is everybody's
ARGUMENTS = {
    **{name: SECTION[name] for name in ("node", "mode", "entries", "base", "upsert", "delete", "token")},
    "blob": {"type": "str", "no_log": True},
    "state_dir": {"type": "path"},
    "commands": {"type": "path", "default": ""},
    "completed": {"type": "path", "default": ""},
    "partition": {"type": "str", "default": ""},
    "seen": {"type": "str", "default": ""},
    "results": {"type": "dict"},
}


def main() -> None:
    """Run one pass."""
    module = AnsibleModule(ARGUMENTS, required_if=REQUIRED_IF, supports_check_mode=True)
    params = module.params
    result, state_dir = {}, params["state_dir"] or home_of(params["node"])
    given = {name: params[name] for name in Request._fields if params.get(name) is not None}
    slurm = Slurm(params["commands"], params["completed"])
    try:
        request = Request(**{**given, "state_dir": state_dir})
        context = context_for(request, threads=THREADS)
        result = quiet.run(
            slurm, request, context, seen=params["seen"], check=module.check_mode, whole=bool(params["partition"])
        )
        if params["partition"]:
            result["partition"] = slurm.partition(params["partition"])
        if params["results"]:
            # Ansible takes "results" for those of a loop
            result["result_files"] = collect(state_dir, params["results"])
    except NodeFault as fault:
        module.fail_json(msg=f"minik8s_slurm_jobs for {params['node']}: {fault}")
    module.exit_json(**{**result, "state_dir": state_dir})


if __name__ == "__main__":
    main()
