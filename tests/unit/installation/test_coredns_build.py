"""Which Go builds CoreDNS: the given one, the machine's, or one of a newer Debian that the build fetches itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).resolve().parents[3] / "roles" / "coredns" / "files" / "build.py"
NEW, NEWER, OLD = "go version go1.24 linux/amd64", "go version go1.30.2 linux/arm64", "go version go1.19.8 linux/amd64"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, on a machine without any Go: its cache and its PATH are in the test's folder."""
    spec = importlib.util.spec_from_file_location("coredns_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "bin").mkdir()
    (tmp_path / "cache" / "minik8s").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "USUAL", str(tmp_path / "usual" / "go"))
    return module


def program(path: Path, script: str) -> str:
    """Write an executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def go(path: Path, message: str) -> str:
    """Write a Go that tells its version and can do nothing else."""
    return program(path, f'[ "$1" = version ] && echo "{message}"')


def mirror(tmp_path: Path, package: str = "") -> None:
    """Stand in for apt and dpkg: a mirror whose packages hold a Go, or that fails at ``package``'s name."""
    program(
        tmp_path / "bin/apt-get",
        f"""case "$*" in
  *indextargets*) echo https://mirror.example/debian;;
  *download*) {package or "touch go.deb src.deb"};;
esac
echo "$@" >>{tmp_path}/apt.log""",
    )
    program(
        tmp_path / "bin/dpkg-deb",
        f"""tree="$3"; mkdir -p "$tree/usr/lib/go-1.24/bin" "$tree/usr/share/go-1.24/src"
printf '#!/bin/sh\\necho {NEW}\\n' >"$tree/usr/lib/go-1.24/bin/go"
chmod 755 "$tree/usr/lib/go-1.24/bin/go"; echo x >"$tree/usr/share/go-1.24/src/main.go"
ln -sfn /usr/share/go-1.24/src "$tree/usr/lib/go-1.24/src\"""",
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [(NEW, (1, 24)), (NEWER, (1, 30)), (OLD, (1, 19)), ("go version devel +abc", (0, 0)), ("", (0, 0))],
)
def test_a_go_is_asked_for_its_version(
    build: ModuleType, tmp_path: Path, message: str, version: tuple[int, int]
) -> None:
    assert build.version_of(go(tmp_path / "go", message)) == version


def test_what_does_not_run_has_no_version(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    assert build.version_of(str(tmp_path / "data")) == (0, 0)
    assert build.version_of(str(tmp_path / "missing")) == (0, 0)


def test_the_given_go_goes_before_the_machines(build: ModuleType, tmp_path: Path) -> None:
    go(tmp_path / "bin/go", NEW)
    given = go(tmp_path / "given/go", NEWER)
    assert build.find_go(given) == given


def test_a_given_go_that_is_too_old_is_passed_over(build: ModuleType, tmp_path: Path) -> None:
    found = go(tmp_path / "bin/go", NEW)
    assert build.find_go(go(tmp_path / "given/go", OLD)) == found


def test_the_go_of_the_usual_place_helps_where_the_path_has_an_old_one(build: ModuleType, tmp_path: Path) -> None:
    go(tmp_path / "bin/go", OLD)
    usual = go(tmp_path / "usual/go", NEWER)
    assert build.find_go("") == usual


@pytest.mark.parametrize("own", ["", OLD])
def test_a_machine_whose_go_is_missing_or_too_old_gets_one_of_its_cache(
    build: ModuleType, tmp_path: Path, own: str
) -> None:
    if own:
        go(tmp_path / "bin/go", own)
    mirror(tmp_path)
    found = build.find_go("")
    assert found == str(tmp_path / "cache/minik8s/go-trixie/bin/go")
    assert build.version_of(found) >= build.OLDEST
    # both packages are joined, and nothing of the work is left
    assert (tmp_path / "cache/minik8s/go-trixie/src/main.go").read_text() == "x\n"
    assert [path.name for path in (tmp_path / "cache/minik8s").iterdir()] == ["go-trixie"]


def test_the_go_of_the_cache_is_fetched_once_and_signed(build: ModuleType, tmp_path: Path) -> None:
    mirror(tmp_path)
    first = build.find_go("")
    asked = (tmp_path / "apt.log").read_text()
    assert asked.count(" download golang-1.24-go/trixie golang-1.24-src/trixie") == 1
    assert "allow-unauthenticated" not in asked.lower()
    assert build.find_go("") == first
    assert (tmp_path / "apt.log").read_text() == asked


def test_without_a_go_and_a_mirror_it_is_said_what_is_missing(build: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "bin/apt-get", "exit 0")
    with pytest.raises(SystemExit, match=r"no Go of at least 1\.24 is here, and apt knows no Debian mirror"):
        build.find_go("")


def test_a_download_that_fails_leaves_no_half_go(build: ModuleType, tmp_path: Path) -> None:
    mirror(tmp_path, package="echo 'E: 404 Not Found' >&2; exit 100")
    with pytest.raises(SystemExit, match="no Go could be fetched: apt-get failed: E: 404 Not Found"):
        build.find_go("")
    assert list((tmp_path / "cache/minik8s").iterdir()) == []
    mirror(tmp_path)
    assert build.version_of(build.find_go("")) >= build.OLDEST


def run(tmp_path: Path, *arguments: str, cache: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program as the role does."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": cache or str(tmp_path / "cache")}
    argv = [sys.executable, str(BUILD), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def builder(path: Path, script: str) -> str:
    """Write a Go that is new enough and builds by ``script``, to the path in ``$out``."""
    return program(
        path,
        f"""[ "$1" = version ] && echo "{NEW}" && exit 0
while [ "$1" != -o ]; do shift; done; out="$2"
{script}""",
    )


def test_the_program_is_built_once_from_a_copy_of_the_pinned_source(tmp_path: Path) -> None:
    given = builder(tmp_path / "go", f'cp go.sum "$out"; pwd >>{tmp_path}/places; echo "$GOFLAGS" >>{tmp_path}/flags')
    first, second = run(tmp_path, "--go", given), run(tmp_path, "--go", given)
    assert (first.returncode, second.stdout) == (0, first.stdout), first.stderr
    assert Path(first.stdout.strip()).read_bytes() == (BUILD.parent / "source" / "go.sum").read_bytes()
    assert len((tmp_path / "places").read_text().splitlines()) == 1
    assert str(BUILD.parent) not in (tmp_path / "places").read_text()
    assert "-mod=readonly" in (tmp_path / "flags").read_text()


def test_a_build_that_fails_ends_with_gos_reason_and_is_tried_again(tmp_path: Path) -> None:
    given = builder(tmp_path / "go", 'echo half >"$out"; echo "first" >&2; echo "module lookup disabled" >&2; exit 1')
    failed = run(tmp_path, "--go", given)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[-1] == f"{given} build failed: module lookup disabled"
    given = builder(tmp_path / "go", 'echo whole >"$out"')
    assert Path(run(tmp_path, "--go", given).stdout.strip()).read_text() == "whole\n"


def test_a_cache_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    failed = run(tmp_path, cache="/dev/null")
    assert failed.returncode == 1
    assert failed.stderr.startswith("there is no cache to build into: ")
    assert len(failed.stderr.splitlines()) == 1
