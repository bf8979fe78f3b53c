"""Lets tests import modules and their shared code under the names they have on a node (ansible.modules, ansible.module_utils)."""

from pathlib import Path

import ansible.module_utils
import ansible.modules

REPOSITORY = Path(__file__).resolve().parent.parent
ansible.modules.__path__.append(str(REPOSITORY / "library"))
ansible.module_utils.__path__.append(str(REPOSITORY / "minik8s_modules" / "module_utils"))
