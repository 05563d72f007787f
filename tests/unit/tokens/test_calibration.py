"""A model's factor: learned, smoothed, bounded, kept in a file that nobody can break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.tokens.calibration import MAX_MODELS, FileCalibration, decoded

MODEL = "openai/gpt"


def test_a_model_is_learned_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "home" / "calibration.json"
    first = FileCalibration(path)
    assert first.factor(MODEL) == 1.0
    first.observe(MODEL, estimated=1_000, observed=1_200)
    assert first.factor(MODEL) == pytest.approx(1.2)
    first.observe(MODEL, estimated=1_000, observed=1_000)
    assert first.factor(MODEL) == pytest.approx(1.1)
    first.save()
    assert FileCalibration(path).factor(MODEL) == pytest.approx(1.1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["calibration.json"]


def test_old_observations_fade(tmp_path: Path) -> None:
    calibration = FileCalibration(tmp_path / "c.json")
    for _ in range(50):
        calibration.observe(MODEL, estimated=1_000, observed=800)
    for _ in range(60):
        calibration.observe(MODEL, estimated=1_000, observed=1_500)
    assert calibration.factor(MODEL) == pytest.approx(1.5, rel=0.01)


def test_factors_stay_in_bounds_and_small_requests_teach_nothing(tmp_path: Path) -> None:
    calibration = FileCalibration(tmp_path / "c.json")
    calibration.observe("a/b", estimated=1_000, observed=1_000_000)
    calibration.observe("c/d", estimated=1_000_000, observed=1_000)
    assert (calibration.factor("a/b"), calibration.factor("c/d")) == (2.0, 0.5)
    calibration.observe(MODEL, estimated=20, observed=30)
    calibration.observe(MODEL, estimated=1_000, observed=0)
    assert calibration.factor(MODEL) == 1.0


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0",
        b"[1, 2]",
        b'{"models": 3}',
        b"\xff{}",
        b"[" * 100_000,
        b'{"models": {"a": {"factor": 9, "samples": 1}, "b": {"factor": 1.5}, "c": null}}',
        b'{"models": {"a": {"factor": 1.0, "samples": 0}}}',
    ],
)
def test_a_damaged_file_is_none_and_is_replaced(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(raw)
    assert decoded(raw) == {}
    calibration = FileCalibration(path)
    assert calibration.factor("a") == 1.0
    calibration.observe(MODEL, estimated=1_000, observed=1_100)
    calibration.save()
    assert FileCalibration(path).factor(MODEL) == pytest.approx(1.1)


def test_what_has_hardly_moved_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    calibration = FileCalibration(path)
    calibration.observe(MODEL, estimated=1_000, observed=1_005)
    calibration.save()
    assert not path.exists()
    calibration.observe(MODEL, estimated=1_000, observed=1_200)
    calibration.save()
    written = path.stat().st_mtime_ns
    for _ in range(5):
        calibration.observe(MODEL, estimated=10_000, observed=round(10_000 * calibration.factor(MODEL)))
        calibration.save()
    assert path.stat().st_mtime_ns == written


def test_two_processes_keep_each_others_models(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    one, two = FileCalibration(path), FileCalibration(path)
    one.observe("x/one", estimated=1_000, observed=1_100)
    one.save()
    two.observe("x/two", estimated=1_000, observed=900)
    two.save()
    assert set(json.loads(path.read_bytes())["models"]) == {"x/one", "x/two"}


def test_saving_to_a_place_that_refuses_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    calibration = FileCalibration(tmp_path / "file" / "calibration.json")
    calibration.observe(MODEL, estimated=1_000, observed=1_100)
    calibration.save()
    assert calibration.factor(MODEL) == pytest.approx(1.1)


def test_models_are_bounded(tmp_path: Path) -> None:
    calibration = FileCalibration(tmp_path / "c.json")
    for i in range(MAX_MODELS + 5):
        calibration.observe(f"m/{i}", estimated=1_000, observed=1_100)
    assert calibration.factor("m/0") == 1.0
    assert calibration.factor(f"m/{MAX_MODELS + 4}") == pytest.approx(1.1)
    calibration.save()
    assert len(json.loads((tmp_path / "c.json").read_bytes())["models"]) == MAX_MODELS
