import pytest
from runbuilder import build_repeat, scrape_line

from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import read_repeat
from servemap.report.series import PANELS, marks, panel_series

ROW = {"variant": "baseline", "case": "decode_c2", "repeat": 1}


def panels(run, telemetry=None):
    derive_attempt(build_repeat(run, telemetry=telemetry), {})
    found = panel_series(read_repeat(run, ROW))
    return {
        title: {line.name: (line.seconds, line.values) for line in lines}
        for title, lines in zip(PANELS, found, strict=True)
    }


def test_lines_of_the_window_and_one_sample_either_side(tmp_path):
    found = panels(tmp_path / "run")
    assert found["CPU %"]["all cores"][1] == pytest.approx([50.0] * 6)
    assert found["CPU %"]["busiest core"][1] == pytest.approx([80.0] * 6)
    seconds, values = found["Engine requests"]["running"]
    assert seconds == [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert values == [2.0] * 7
    assert found["Network Mbit/s"]["eth0 in"][1] == pytest.approx([0.008] * 6)


def test_data_parallel_ranks_add_up(tmp_path):
    lines = [scrape_line(k) for k in range(7)]
    for line in lines:
        line["text"] = (
            "# TYPE vllm:num_requests_running gauge\n"
            'vllm:num_requests_running{engine="0"} 3\n'
            'vllm:num_requests_running{engine="1"} 4\n'
        )
    found = panels(tmp_path / "run", {"engine_metrics": lines})
    assert found["Engine requests"]["running"][1] == [7.0] * 7
    assert found["CPU %"] == {}


def test_no_telemetry_is_no_line(tmp_path):
    assert not any(panels(tmp_path / "run", {}).values())
    assert not any(panel_series(read_repeat(tmp_path / "none", ROW)))


def test_marks_are_seconds_since_the_first_segment(tmp_path):
    run = tmp_path / "run"
    derive_attempt(build_repeat(run, segments=[("control", 0, 500), ("injected", 800, 2000)]), {})
    segments, injections = marks(read_repeat(run, ROW))
    assert segments == [(0.0, 0.5), (0.8, 2.0)]
    assert injections == []
