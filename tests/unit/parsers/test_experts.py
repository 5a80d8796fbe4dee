"""Records of SGLang's expert distribution, written by hand in the form of torch.save."""

import io
import json
import pickle
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from servemap.analysis.traces.experts import LayerLoad, expert_load
from servemap.cli import app
from servemap.model.errors import ParseError
from servemap.parsers.experts import expert_counts
from servemap.parsers.torch_file import read_torch_file
from tests.tracebuilder import kernel, write


class Tensor:
    """Stands for a tensor on its way into a pickle."""

    def __init__(self, numbers: Any, kind: str = "IntStorage") -> None:
        self.numbers, self.kind = np.ascontiguousarray(numbers), kind

    def __reduce__(self) -> Any:
        steps = tuple(step // self.numbers.itemsize for step in self.numbers.strides)
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        storage = (self, self.kind)
        return rebuild, (storage, 0, self.numbers.shape, steps, False, {})


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2() -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = (
        "torch._utils", "_rebuild_tensor_v2"
    )  # fmt: skip
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in ("IntStorage", "LongStorage", "QUInt8Storage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def made(data: Any, name: str = "record.pt", order: bytes = b"little") -> Path:
        kept: list[bytes] = []

        class Pickler(pickle.Pickler):
            def persistent_id(self, one: Any) -> Any:
                if isinstance(one, tuple) and one and isinstance(one[0], Tensor):
                    kept.append(one[0].numbers.tobytes())
                    kind = getattr(torch, one[1])
                    return "storage", kind, str(len(kept) - 1), "cuda:0", one[0].numbers.size
                return None

        program = io.BytesIO()
        Pickler(program, 2).dump(data)
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("record/data.pkl", program.getvalue())
            archive.writestr("record/byteorder", order)
            for key, content in enumerate(kept):
                archive.writestr(f"record/data/{key}", content)
        return path

    return made


COUNTS = np.array([[[0, 0, 0], [6, 0, 3]], [[0, 0, 0], [2, 1, 0]]], np.int32)


def test_counts_of_the_mode_stat(save: Any) -> None:
    path = save({"rank": 0, "logical_count": Tensor(COUNTS), "average": 0.5, "none": None})
    assert expert_counts([path]).tolist() == [[0, 0, 0], [8, 1, 3]]
    other = save({"logical_count": Tensor(COUNTS)}, "other.pt")
    load = expert_load(expert_counts([path, other]))
    assert load.experts == 3
    assert load.layers == [LayerLoad(1, 24, 2.0, 0, 0)]


def test_counts_of_the_mode_per_pass_are_of_logical_experts(save: Any) -> None:
    places = np.array([[0, 1, 0], [1, 0, 1]], np.int64)

    def rank(number: int) -> Path:
        record = {
            "forward_pass_id": 7, "rank": number, "gatherer_key": "primary",
            "global_physical_count": Tensor(COUNTS[0]),
        }  # fmt: skip
        data = {"records": [record, record], "last_physical_to_logical_map":
                Tensor(places, "LongStorage")}  # fmt: skip
        return save(data, f"{number}.pt")

    assert expert_counts([rank(0), rank(1)]).tolist() == [[0, 0], [0, 36]]


def test_choices_alone_are_not_read(save: Any) -> None:
    path = save({"records": [{"topk_ids_of_layer": Tensor(COUNTS)}]})
    with pytest.raises(ParseError, match="mode stat or per_pass"):
        expert_counts([path])


def test_a_file_named_twice_is_not_counted_twice(save: Any, tmp_path: Path) -> None:
    path = save({"logical_count": Tensor(COUNTS)})
    (tmp_path / "link.pt").symlink_to(path)
    for again in (path, tmp_path / "link.pt"):
        with pytest.raises(ParseError, match="named twice"):
            expert_counts([path, again])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_of_the_zip_is_said_as_damage(save: Any, method: int) -> None:
    path = save({"logical_count": Tensor(COUNTS)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    whole, refused = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            read_torch_file(path)
        except ParseError:
            refused += 1
    assert refused > 0


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_nothing_in_a_file_is_run(save: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for data in (Evil(), {"logical_count": Evil()}, {"a": object()}, {"s": {1, 2}}):
        with pytest.raises(ParseError, match="plain data"):
            read_torch_file(save(data))
    assert "run" not in capsys.readouterr().out


def test_odd_files_are_refused_in_words(save: Any, tmp_path: Path) -> None:
    for path, why in (
        (save({"logical_count": Tensor(COUNTS, "QUInt8Storage")}, "a"), "unknown kind"),
        (save({"logical_count": Tensor(COUNTS)}, "b", b"big"), "big-endian"),
        (save({"logical_count": Tensor(COUNTS[0])}, "c"), "3 dimensions"),
        (save({"logical_count": Tensor(COUNTS - 1)}, "d"), "negative"),
        (save({"logical_count": Tensor(COUNTS, "LongStorage")}, "e"), "larger than its storage"),
        (save([1], "f"), "neither"),
        (save({"logical_count": Tensor(COUNTS[:0])}, "empty"), "no counts"),
        (save({"logical_count": Tensor(COUNTS)}, "i", b"little" * 100), "byteorder is larger"),
    ):
        with pytest.raises(ParseError, match=why):
            expert_counts([path])
    other = save({"logical_count": Tensor(COUNTS[:, :1])}, "g")
    with pytest.raises(ParseError, match="another file"):
        expert_counts([save({"logical_count": Tensor(COUNTS)}, "h"), other])
    (tmp_path / "no.pt").write_bytes(b"no zip")
    with pytest.raises(ParseError):
        expert_counts([tmp_path / "no.pt"])


@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_damage_gives_counts_or_a_refusal(save: Any, data: Any) -> None:
    path = save({"rank": 0, "logical_count": Tensor(COUNTS)})
    with zipfile.ZipFile(path) as archive:
        members = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    program = members["record/data.pkl"]
    at = data.draw(st.integers(0, len(program) - 1))
    program[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, bytes(content))
    try:
        expert_counts([path])
    except ParseError:
        return


def test_the_question_is_answered_from_the_record(save: Any, tmp_path: Path) -> None:
    trace = write(tmp_path / "t.json", [kernel("fused_moe_kernel", 0, 5)])
    out = tmp_path / "a.json"
    record = save({"logical_count": Tensor(COUNTS)})
    words = ["trace", str(trace), "--experts", str(record), "--out", str(out)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0 and "busiest / mean" in done.output
    found = json.loads(out.read_text())
    assert found["experts"]["layers"][0]["max_over_mean"] == 2.0
    [answer] = [one for one in found["questions"] if "expert" in one["question"]]
    assert answer["answered"] and "at most 2 times (layer 1, expert 0)" in answer["answer"]
    assert [one["name"] for one in answer["behind"]] == ["fused_moe_kernel"]


def test_a_record_without_tokens_is_said(save: Any, tmp_path: Path) -> None:
    trace = write(tmp_path / "t.json", [kernel("gemm", 0, 5)])
    record, out = save({"logical_count": Tensor(COUNTS * 0)}), tmp_path / "a.json"
    words = ["trace", str(trace), "--experts", str(record), "--out", str(out)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0 and "busiest / mean" not in done.output
    [answer] = [
        one for one in json.loads(out.read_text())["questions"] if "expert" in one["question"]
    ]
    assert not answer["answered"] and "counts no token" in answer["answer"]
