"""Images from one static busybox."""

from __future__ import annotations

import io
import tarfile

from minik8s_modules.module_utils.minik8s.install.images import Recipe, archive, changes, linked, plan_images

RECIPE = Recipe("minik8s/test:1", ("sh", "sleep"), ("/bin/sleep", "5"), (("PATH", "/bin"),))


def test_the_archive_holds_the_program_once_and_links_to_it() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(RECIPE, b"program"))) as tar:
        program = tar.extractfile("bin/busybox")
        assert program is not None
        assert program.read() == b"program"
        assert {name: tar.getmember(name).linkname for name in ("bin/sh", "bin/sleep")} == dict.fromkeys(
            ("bin/sh", "bin/sleep"), "busybox"
        )
        assert tar.getmember("tmp").mode == 0o1777
        assert {member.mtime for member in tar} == {0}


def test_programs_of_the_machine_stand_in_for_applets_with_their_libraries() -> None:
    files = {"bin/sh": b"shell", "lib/x/libc.so.6": b"library"}
    with tarfile.open(fileobj=io.BytesIO(archive(RECIPE, b"program", files))) as tar:
        names = tar.getnames()
        assert names.count("bin/sh") == 1
        assert {"lib", "lib/x", "lib/x/libc.so.6"} <= set(names)
        shell = tar.extractfile("bin/sh")
        assert shell is not None
        assert shell.read() == b"shell"
    result = RECIPE.digest(b"program", files)
    assert result != RECIPE.digest(b"program")
    assert result != RECIPE.digest(b"program", {**files, "bin/sh": b"another"})


def test_libraries_are_read_as_ldd_tells_them() -> None:
    text = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f2a)\n"
        "\tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f2b)\n"
    )
    assert linked(text) == ["/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"]


def test_the_same_recipe_gives_the_same_bytes() -> None:
    assert archive(RECIPE, b"program") == archive(RECIPE, b"program")


def test_every_part_of_the_content_counts() -> None:
    others = [RECIPE._replace(applets=("sh",)), RECIPE._replace(command=("/bin/sh",)), RECIPE._replace(environment=())]
    digests = {recipe.digest(b"program") for recipe in [RECIPE, *others]} | {RECIPE.digest(b"other")}
    assert len(digests) == 5


def test_an_image_is_built_when_it_is_missing_or_another() -> None:
    wanted = {"a:1": "x", "b:1": "y", "c:1": "z"}
    assert plan_images(wanted, {"a:1": "x", "b:1": None, "c:1": ""}) == ["b:1", "c:1"]


def test_the_changes_name_content_command_and_environment() -> None:
    assert changes(RECIPE, "d") == ["LABEL minik8s.io/content=d", 'CMD ["/bin/sleep", "5"]', 'ENV PATH="/bin"']
