"""Lets tests import library/ as ansible.modules and the nodes' shared code as ansible.module_utils.minik8s."""

from pathlib import Path

import ansible.module_utils
import ansible.modules

REPOSITORY = Path(__file__).resolve().parent.parent
ansible.modules.__path__.append(str(REPOSITORY / "library"))
ansible.module_utils.__path__.append(str(REPOSITORY / "minik8s_modules" / "module_utils"))
