"""The contest of compaction policies, in simulated time: is the default the best?

    python -m scripts.eval_compaction [--json] [--sweep] [--task T[,T]] [--arm A[,A]] [--seeds N] [--jobs N]

Prints the table (`--json`: rows `{task, arm, recall, recall_recovery, cache_hit, prompt_tokens, paid, discarded,
stalled, deaths}`, averages over the seeds, deaths counted) and writes `scripts/results/evaluation.md` when everything
was run, with the usual seeds. `--sweep` tries more values of the policy and prints their front of recall, tokens and
waiting. Exit 1 when a goal is missed or the standard cannot tell bad from good. Needs the runtime dependencies alone
and about a minute on two cores; the figures are the same every time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from scripts.evaluation import contest, goals, studies  # noqa: E402
from scripts.evaluation.arms import ARMS  # noqa: E402
from scripts.evaluation.contest import Cells, Row, run_all  # noqa: E402
from scripts.evaluation.goals import Check  # noqa: E402
from scripts.evaluation.page import page  # noqa: E402
from scripts.evaluation.studies import Point  # noqa: E402
from scripts.evaluation.tables import table  # noqa: E402
from scripts.evaluation.tasks import TASKS  # noqa: E402

RESULTS = ROOT / "scripts" / "results" / "evaluation.md"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="eval_compaction", description="The contest of compaction policies.")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--sweep", action="store_true", help="try more values of the policy, and print what they do")
    parser.add_argument("--task", metavar="TASK[,TASK]", help=f"some of {', '.join(TASKS)}")
    parser.add_argument("--arm", metavar="ARM[,ARM]", help=f"some of {', '.join(ARMS)}")
    parser.add_argument("--seeds", type=_positive, default=contest.SEEDS, metavar="N", help="sessions per task and arm")
    parser.add_argument("--jobs", type=_positive, metavar="N", help="processes; as many as there are cores")
    options = parser.parse_args(argv)
    tasks = _chosen(parser, "task", options.task, TASKS)
    arms = _chosen(parser, "arm", options.arm, tuple(ARMS))

    cells = _run("contest", contest.contest(tasks, arms, options.seeds), options.jobs)
    checks = goals.checks_of(cells)
    everything = (tasks, arms, options.seeds) == (TASKS, tuple(ARMS), contest.SEEDS)
    points: list[Point] = []
    if everything or options.sweep:
        swept = studies.sweep_arms(whole=options.sweep)
        points = studies.points(_run("sweep", studies.sweep_jobs(swept), options.jobs), swept)
    if everything:
        cells = {**_run("studies", studies.study_jobs(options.seeds), options.jobs), **cells}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(page(cells, checks, studies.of_page(points), options.seeds), encoding="utf-8")
    _print(contest.rows_of(cells), points if options.sweep else [], as_json=options.json)
    return _verdict(checks)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _chosen(parser: argparse.ArgumentParser, what: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The named ones in their usual order; all of them without a name."""
    wanted = known if text is None else tuple(text.split(","))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


def _run(what: str, jobs: Sequence[contest.Job], workers: int | None) -> Cells:
    print(f"{what}: {len(jobs)} sessions ...", end="", flush=True, file=sys.stderr)
    began = time.monotonic()
    cells = run_all(jobs, workers)
    print(f" {time.monotonic() - began:.1f} s", file=sys.stderr)
    return cells


def _print(rows: Sequence[Row], points: Sequence[Point], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print(table(list(rows[0]), [[_figure(value) for value in row.values()] for row in rows]))
    if points:
        lines = [
            [p.name, "yes" if p.on_front else "", *(_figure(round(v, 3)) for v in (p.recall, p.tokens, p.waited_s))]
            for p in sorted(points, key=lambda p: (-p.recall, p.tokens))
        ]
        print("\n" + table(["policy", "on the front", "recall", "tokens", "waited, s a landing"], lines))


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _verdict(checks: Sequence[Check]) -> int:
    failed = [c for c in checks if not c.met]
    for check in failed:
        print(f"missed: {check.kind}: {check.name} ({check.detail})", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
