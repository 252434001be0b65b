"""The commands on packages of TensorRT engines, as on a machine without a GPU, and beside drivers that stand in for one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_packages import FAILED, PASSED, write_finished, write_rtx, write_unfinished
from stand_in_driver import ORIN, compile_driver

from edge.cli.main import main

REBUILD = "edge build tiny.gguf --tier int4 --target"


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver that finds no GPU, wherever this runs."""
    return compile_driver(tmp_path_factory.mktemp("nobody"), INIT=100, ERROR_NAME='"CUDA_ERROR_NO_DEVICE"')


@pytest.fixture(scope="module")
def a10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("a10"))


@pytest.fixture(scope="module")
def orin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("orin"), **ORIN)


@dataclass(frozen=True)
class Done:
    code: object
    out: str
    err: str


class Edge:
    """The command, in this process; the driver is asked in another, for which the loader finds the one that is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def run(self, driver: Path, *words: object) -> Done:
        self._monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.parent))
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return Done(ended.value.code, *self._capsys.readouterr())

    def refuse(self, driver: Path, *words: object) -> str:
        """The line with which it is refused."""
        done = self.run(driver, *words)
        assert (done.code, done.out) == (1, ""), done.err
        assert len(done.err.splitlines()) == 1
        return done.err.strip().removeprefix("edge: ")


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Edge:
    return Edge(monkeypatch, capsys)


@pytest.mark.parametrize("word", ["run", "chat", "bench"])
def test_an_engine_is_refused_where_its_gpu_is_not(edge: Edge, tmp_path: Path, nobody: Path, word: str) -> None:
    package = write_rtx(tmp_path / "a.edge")
    assert edge.refuse(nobody, word, package) == (
        f"{package}: needs a GPU of sm 8.6 (a10), and here is none: the NVIDIA driver gives CUDA_ERROR_NO_DEVICE (cuInit, "
        f"error 100). See what nvidia-smi says, and what CUDA_VISIBLE_DEVICES leaves visible; or build for the CPU: "
        f"{REBUILD} cpu"
    )


@pytest.mark.parametrize("word", ["run", "chat", "bench"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_unfinished_engine_is_refused_with_the_command_that_finishes_it(
    edge: Edge, tmp_path: Path, nobody: Path, word: str, force: list[str]
) -> None:
    package = write_unfinished(tmp_path / "two words.edge")
    assert edge.refuse(nobody, word, *force, package) == (
        f"{package}: not finished: its device makes the plan. On the orin-nx-16: edge build '{package}' --finish"
    )


def test_an_engine_of_another_gpu_is_refused_with_both(edge: Edge, tmp_path: Path, orin: Path) -> None:
    package = write_rtx(tmp_path / "a.edge")
    assert edge.refuse(orin, "run", package).startswith(f"{package}: built for sm 8.6 (a10), this GPU is sm 8.7 (Orin). ")


def test_an_engine_that_fits_is_told_that_nothing_runs_it_yet(edge: Edge, tmp_path: Path, a10: Path) -> None:
    library = pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    package = write_rtx(tmp_path / "a.edge", lambda m: m["engine"]["plan"].update(version=library.__version__))
    assert edge.refuse(a10, "run", package) == (
        f"{package}: fits this machine, but this version of edge-zero has no executor for TensorRT-RTX yet. "
        f"What runs here: {REBUILD} cpu"
    )


def test_verify_checks_all_but_the_engine_and_says_so(edge: Edge, tmp_path: Path, nobody: Path) -> None:
    package = write_rtx(tmp_path / "a.edge")
    done = edge.run(nobody, "verify", package)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == f"{package}: verified, but for a run of its engine"
    assert lines[2] == "  TensorRT-RTX 1.7.1.116 for sm 8.6, plan of 600 bytes"
    assert lines[-1].startswith("  engine not run: needs a GPU of sm 8.6 (a10), and here is none: the NVIDIA driver gives ")
    found = json.loads(edge.run(nobody, "verify", "--json", package).out)
    assert (found["passed"], found["engine_run"], found["plan_version"]) == (True, None, "1.7.1.116")
    assert found["engine_not_run"].startswith("needs a GPU of sm 8.6 (a10), and here is none")


def test_verify_of_an_unfinished_package_names_the_next_step(edge: Edge, tmp_path: Path, nobody: Path) -> None:
    package = write_unfinished(tmp_path / "a.edge")
    done = edge.run(nobody, "verify", package)
    assert done.code == 0, done.err
    assert "  TensorRT for sm 8.7, without a plan: its device makes it\n" in done.out
    assert done.out.endswith(f"On the orin-nx-16: edge build {package} --finish\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["verdicts"].update(graph=FAILED),
        lambda m: m["verdicts"].update(tier=None),
        lambda m: m["verdicts"].update(engine=FAILED),
        # Figures that only the manifest's own, loose limits let pass.
        lambda m: m["verdicts"].update(graph=FAILED | {"limits": {"kl_mean": 9.0, "top1": 0.0, "perplexity_ratio": 9.0},
                                                       "passed": True}),
    ],
)  # fmt: skip
def test_verify_fails_where_a_verdict_does(edge: Edge, tmp_path: Path, nobody: Path, change: object) -> None:
    done = edge.run(nobody, "verify", write_finished(tmp_path / "a.edge", change))  # type: ignore[arg-type]
    assert done.code == 1 and "FAILED" in done.out.splitlines()[0]


def test_verify_finds_a_changed_plan_and_a_damaged_reference(edge: Edge, tmp_path: Path, nobody: Path) -> None:
    package = write_rtx(tmp_path / "a.edge")
    (package / "engine/model.plan").write_bytes(b"a plaN" * 100)
    assert f"{package}/engine/model.plan: SHA-256 is " in edge.refuse(nobody, "verify", package)
    package = write_rtx(tmp_path / "b.edge", lambda m: m["reference"][0].update(name="other"))
    assert "is not a reference of this package" in edge.refuse(nobody, "verify", package)


def test_inspect_shows_what_the_engine_is(edge: Edge, tmp_path: Path, nobody: Path) -> None:
    package = write_finished(tmp_path / "a.edge", lambda m: m["engine"]["plan"].update(note="W8A8 was\nrefused"))
    done = edge.run(nobody, "inspect", package)
    assert done.code == 0, done.err
    rows = [" ".join(line.split()) for line in done.out.splitlines()]
    for row in (
        "engine TensorRT for sm 8.7, weights e086da5980e8",
        "plan 600 bytes, built by TensorRT 10.16.2.10 with a driver of CUDA 13.2, from graph 59ba6e1878b6",
        "runs on orin-nx-16, on which it was built, and no other",
        "note W8A8 was refused",
        "graph verdict passed: KL 0.00010, top-1 99.9 %, perplexity x 1.0001, 9 tokens of t",
        "4f36b20a12f6 TensorRT 10.3 and newer linear KV float16 engine/graphs/tensorrt-10.3.onnx",
        "input past_key.N 2 float16 1 x 1 x 128 x 32",
        "output logits 1 float16 1 x ? x 64",
        "prefill input_ids 1 x 1 1 x 128 1 x 128",
        "decode input_ids 1 x 1 1 x 1 1 x 1",
    ):
        assert row in rows
    found = json.loads(edge.run(nobody, "inspect", "--json", package).out)
    assert found["engine"]["plan"]["driver"] == "13.2" and found["verdicts"]["graph"] == PASSED


def test_inspect_of_an_unfinished_package_names_the_next_step(edge: Edge, tmp_path: Path, nobody: Path) -> None:
    package = write_unfinished(tmp_path / "a.edge")
    done = edge.run(nobody, "inspect", package)
    assert done.code == 0, done.err
    assert f"none yet; on the orin-nx-16: edge build {package} --finish\n" in done.out
