"""The archive of the control plane's environment, for a Python that is not the one here."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PREFIX = Path("/opt/minik8s")
OTHER = "3.99"


@pytest.fixture
def bundle() -> ModuleType:
    """The program as a module."""
    return program("roles/application/files/bundle.py")


def program(path: str) -> ModuleType:
    """Return a program as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPOSITORY / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, tag: str, library: str) -> None:
    """Write a wheel of the package ``one`` with a program and a compiled library of that name."""
    files = {
        "one/__init__.py": "",
        f"one/{library}": "",
        "one-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: one\nVersion: 1.0\nRequires-Python: >={OTHER}\n",
        "one-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "one-1.0.dist-info/entry_points.txt": "[console_scripts]\none = one:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, "one-1.0.dist-info/RECORD"])
    with zipfile.ZipFile(folder / f"one-1.0-{tag}.whl", "w") as archive:
        for name, text in {**files, "one-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)


def made(bundle: ModuleType, folder: Path) -> Path:
    """Make the environment from the wheels in ``folder``; return it."""
    (folder / "requirements.txt").write_text(
        '# a lock\none==1.0 ; python_version >= "3.99"\none==0.9 ; python_version < "3.99"\n'
    )
    fields = {"repository": str(folder), "prefix": str(PREFIX), "python": OTHER, "wheels": str(folder)}
    maker = bundle.Maker(argparse.Namespace(**fields), folder)
    (folder / "tree").mkdir()
    maker.requirements(folder / "tree")
    return folder / "tree" / "venv"


def test_an_environment_for_another_python_needs_no_such_interpreter(bundle: ModuleType, tmp_path: Path) -> None:
    wheel(tmp_path, "cp399-cp399-linux_x86_64", "fast.cpython-399-x86_64-linux-gnu.so")
    venv = made(bundle, tmp_path)
    assert (venv / f"lib/python{OTHER}/site-packages/one/fast.cpython-399-x86_64-linux-gnu.so").exists()
    program = (venv / "bin/one").read_text()
    assert program.splitlines()[0] == "#!/opt/minik8s/venv/bin/python"
    assert sys.executable not in program
    assert str(tmp_path) not in program
    assert (venv / "bin/python").readlink() == Path("/usr/bin/python3")
    assert "version = 3.99" in (venv / "pyvenv.cfg").read_text()


def test_a_library_for_our_python_is_refused_for_another(
    bundle: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(tmp_path, "py3-none-any", "slow.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(SystemExit, match=r"no wheels for Python 3.99 of slow\.cpython-311"):
        made(bundle, tmp_path)


def test_an_environment_for_our_own_python_is_compiled_here(bundle: ModuleType) -> None:
    assert bundle.is_ours("{}.{}".format(*sys.version_info[:2]))
    assert not bundle.is_ours(OTHER)


@pytest.mark.parametrize("path", ["roles/application/files/bundle.py", "roles/bundle/files/wheels.py"])
def test_of_a_lock_another_python_gets_its_own_lines(path: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text('# a lock\na==1\nb==2 ; python_version < "3.12"\nb==3 ; python_version >= "3.12"\n')
    assert program(path).locked(lock, "3.11") == ["a==1", "b==2"]
    assert program(path).locked(lock, "3.9") == ["a==1", "b==2"]
    assert program(path).locked(lock, "3.13") == ["a==1", "b==3"]
