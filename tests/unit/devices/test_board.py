"""Which board this is, from files laid as Jetson Linux lays them."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from fake_board import lay_board

from edge.board import JETPACKS, Board, find_board

JETPACK_7 = "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic, EABI: aarch64"


def test_a_developer_kit_is_known_with_jetpack_and_power_mode(tmp_path: Path) -> None:
    assert find_board(lay_board(tmp_path)) == Board(
        title="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        chip="tegra234",
        target="orin-nano-8",
        is_known=True,
        jetson_linux="36.4.3",
        jetpack="6.2",
        power_mode="MAXN_SUPER",
    )


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("p3701-0005", "orin-agx-64"),
        ("p3701-0004", "orin-agx-32"),
        ("p3701-0000", "orin-agx-devkit-32"),
        ("p3701-0008", "orin-agx-industrial"),
        ("p3767-0000", "orin-nx-16"),
        ("p3767-0001", "orin-nx-8"),
        ("p3767-0003", "orin-nano-8"),
        ("p3767-0004", "orin-nano-4"),
    ],
)
def test_a_module_on_any_carrier_board_is_known(tmp_path: Path, module: str, target: str) -> None:
    compatible = (f"somebody,carrier+{module}", f"nvidia,{module}", "nvidia,tegra234")
    board = find_board(lay_board(tmp_path, compatible=compatible))
    assert board is not None
    assert (board.target, board.is_known) == (target, True)


def test_an_orin_that_no_profile_knows_gets_the_generic_one_and_says_so(tmp_path: Path) -> None:
    board = find_board(lay_board(tmp_path, compatible=("nvidia,p3799-0000", "nvidia,tegra234")))
    assert board is not None
    assert (board.target, board.is_known) == ("jetson-generic", False)


def test_a_jetson_of_another_chip_is_no_target(tmp_path: Path) -> None:
    board = find_board(lay_board(tmp_path, model="NVIDIA Jetson AGX Thor", compatible=("nvidia,p3834-0008", "nvidia,tegra264")))
    assert board is not None
    assert (board.chip, board.target, board.is_known) == ("tegra264", None, False)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("# R36 (release), REVISION: 4.0, GCID: 37537400", ("36.4.0", "6.1")),
        ("# R36 (release), REVISION: 4, GCID: 37537400", ("36.4", "6.1")),
        ("# R36 (release), REVISION: 4.7, GCID: 1", ("36.4.7", "6.2.1")),
        ("# R36 (release), REVISION: 5.0, GCID: 1", ("36.5.0", "6.2.2")),
        (JETPACK_7, ("39.2.0", "7.2")),
        ("# R36 (release), REVISION: 9.9, GCID: 1", ("36.9.9", None)),
        ("something else", (None, None)),
        (None, (None, None)),
    ],
)
def test_jetson_linux_says_which_jetpack(tmp_path: Path, release: str | None, expected: tuple[str | None, ...]) -> None:
    board = find_board(lay_board(tmp_path, release=release))
    assert board is not None
    assert (board.jetson_linux, board.jetpack) == expected


def test_in_a_container_the_package_list_says_it(tmp_path: Path) -> None:
    board = find_board(lay_board(tmp_path, release=None, package="36.4.4-20250616085344"))
    assert board is not None
    assert (board.jetson_linux, board.jetpack) == ("36.4.4", "6.2.1")


def test_a_package_that_was_removed_tells_nothing(tmp_path: Path) -> None:
    status = lay_board(tmp_path, release=None, package="36.4.4-20250616085344") / "var/lib/dpkg/status"
    status.write_text(status.read_text().replace("install ok installed", "deinstall ok config-files"))
    board = find_board(tmp_path)
    assert board is not None
    assert (board.jetson_linux, board.jetpack) == (None, None)


@pytest.mark.parametrize("tells", [{"release": JETPACK_7}, {"release": None, "package": "39.2.0-20260601120000"}])
def test_a_board_whose_device_tree_a_container_hides_is_one_of_an_unknown_chip(
    tmp_path: Path, tells: dict[str, str | None]
) -> None:
    lay_board(tmp_path, **tells)  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "proc/device-tree")
    board = find_board(tmp_path)
    assert board is not None
    assert (board.title, board.chip, board.target) == ("a Jetson whose device tree is hidden", None, None)
    assert (board.is_known, board.jetpack) == (False, "7.2")


def test_the_installer_knows_the_same_releases() -> None:
    text = (Path(__file__).parents[3] / "edge/install/machine.sh").read_text(encoding="utf-8")
    theirs = {
        release: jetpack
        for releases, jetpack in re.findall(r"^\s+([\d.| ]+)\) jetpack=([\d.]+) board_python", text, re.MULTILINE)
        for release in releases.split(" | ")
        if re.fullmatch(r"\d+\.\d+\.\d+", release)
    }
    assert len(theirs) >= 8
    assert {release: JETPACKS.get(release) for release in theirs} == theirs


def test_a_power_mode_that_nothing_tells_is_none(tmp_path: Path) -> None:
    for index, changes in enumerate(({"mode": None}, {"mode": 9})):
        board = find_board(lay_board(tmp_path / str(index), **changes))  # type: ignore[arg-type]
        assert board is not None
        assert board.power_mode is None


def test_other_machines_are_no_board(tmp_path: Path) -> None:
    assert find_board(tmp_path) is None
    lay_board(tmp_path, model="Raspberry Pi 5", compatible=("raspberrypi,5-model-b", "brcm,bcm2712"))
    assert find_board(tmp_path) is None


def test_files_that_are_no_text_do_not_matter(tmp_path: Path) -> None:
    lay_board(tmp_path)
    known = find_board(tmp_path)
    for name in ("etc/nv_tegra_release", "etc/nvpmodel.conf", "var/lib/nvpmodel/status"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    (tmp_path / "proc/device-tree/model").unlink()
    board = find_board(tmp_path)
    assert board is not None
    assert known is not None
    assert board == dataclasses.replace(
        known, title="a Jetson without a name", jetson_linux=None, jetpack=None, power_mode=None
    )
