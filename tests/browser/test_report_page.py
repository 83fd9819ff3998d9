# SPDX-License-Identifier: Apache-2.0
"""The page of `train --report` in a real browser: what it draws, asks for, and prints."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread

ROOT = Path(__file__).parents[2]
STEPS, RANKS = 40, 2
COLUMNS = ["step", "steps", "trained", "samples", "begin_us", "total_us", "longest_us", "step_us",
           "nested_us", "messages", "bytes", "forward_us", "backward_us", "wait_us"]  # fmt: skip
BEGIN = 1_750_000_000_000_000  # [us]
HOSTILE = "<script>document.title = 'caught'</script><img src=http://127.0.0.1:9/x>"
GROUNDS = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x15, 0x18, 0x1D)}

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="no chromium here (ci/setup --browser)"
)


def write_rank(file: Path, rank: int) -> None:
    """Record of a pipeline of two partitions, whose second one computes half as long."""
    header = {"format": 1, "rank": rank, "first_rank": 0, "host": "algo-1", "job": "one",
              "columns": COLUMNS}  # fmt: skip
    settings = {"microbatches": 4, "pipeline": "interleaved", "active_microbatches": 4}
    job = {"ranks": RANKS, "groups": {"PP": [0, 1]}, "settings": settings, "torch": "2.11.0"}
    lines: list[object] = [header, {"job": job}]
    if rank == 0:
        tree = f"\n(root) 0\n  {HOSTILE} 1"
        predicted = {"step_ms": 33.5, "use": 0.875, "bytes": 3 * 10**6}
        lines.append({"partition": {"summary": "by time", "balance": "even", "tree": tree,
                                    "predicted": predicted}})  # fmt: skip
    for step in range(1, STEPS + 1):
        begin = BEGIN + 50_000 * step
        own = 30_000 // (1 + rank)
        lines.append([step, 1, 1, 8, begin, 50_000, 50_000, 48_000, 0, 8, 4096,
                      own // 3, 2 * own // 3, 45_000 - own])  # fmt: skip
        lines.append({"loss": [step, 2 / step, True, begin / 1e6, 8]})
        if step in (1, 2, 5, 10, 20):
            rows = [[n % 3, 3000 * n, 2900, n % 4, f"layers.{n}"] for n in range(12)]
            lines.append(
                {"spans": {"step": step, "begin_us": begin, "dropped": False, "rows": rows}}
            )
            memory = {"parameters": 10**8, "gradients": 10**8}
            lines.append({"memory": {"time": begin / 1e6, "peak": 10**9, "kinds": memory}})
    lines.append({"event": {"time": BEGIN / 1e6 + 1, "kind": "checkpoint", "text": HOSTILE}})
    lines.append({"traffic": [[1 - rank, 320, 163_840]]})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    records = folder / "records"
    records.mkdir()
    for rank in range(RANKS):
        write_rank(records / f"rank-{rank}.jsonl", rank)
    samples = [[BEGIN / 1e6 + n, 0.5, 4 * 10**9, 8 * 10**9, n * 10**6, n * 10**6] for n in range(5)]
    lines = [{"format": 1, "host": "algo-1"}, *samples]
    (records / "host-algo-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    parts = {"computing": 0.03, "recomputing": 0, "waiting": 0.01}
    predicted = {"step_seconds": 0.04, "times": parts, "memory_bytes": 300_000_000,
                 "memory": {"buffers": 50_000_000}, "sent_bytes": 4000}  # fmt: skip
    row = {"memory_bytes": 300_000_000, "samples_per_second": 200, "fits": True,
           "mp_parameters": {"microbatches": 4}}  # fmt: skip
    others = [row | {"memory_bytes": 10**8, "samples_per_second": 100}, row | {"fits": False}]
    suggestion = {"settings": {"microbatches": 4}, "predicted": predicted,
                  "candidates": [row, *others]}  # fmt: skip
    (folder / "suggestion.json").write_text(json.dumps(suggestion))
    file = folder / "report.html"
    train = ROOT / ".venv" / "bin" / "train"
    subprocess.run(
        [train, "--report", records, folder / "suggestion.json", "--output", file],
        check=True,
        timeout=60,
    )
    return file


def browse(page: Path, folder: Path, *options: str, scheme: str = "light") -> str:
    """Output of the browser. It must not say that anything failed, nor ask anybody."""
    requests = folder / "requests.json"
    done = subprocess.run(
        [
            *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-extensions", "--hide-scrollbars", "--window-size=1200,1600"),
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            *("--enable-logging=stderr", "--virtual-time-budget=5000"),
            *(f"--user-data-dir={folder / 'profile'}", f"--log-net-log={requests}"),
            *(*options, page.as_uri()),
        ],
        cwd=folder, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert ":CONSOLE" not in done.stderr, done.stderr
    asked = set(re.findall(r'"url":"((?:https?|wss?)://[^"]*)"', requests.read_text()))
    # The browser's own, whatever it is told: no page has a part in these.
    own = {url for url in asked if re.match(r"https?://[^/]*\.(google|googleapis|gvt1)\.com/", url)}
    assert asked == own
    return done.stdout


class Texts(HTMLParser):
    """Texts of a page, by the element that each stands in."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.heads: list[str] = []
        self.drawn = {"svg": 0, "canvas": 0, "img": 0}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self._open.append(tag)
        if tag in self.drawn:
            self.drawn[tag] += 1

    def handle_data(self, text: str) -> None:
        if self._open and self._open[-1] in ("h1", "h2"):
            self.heads.append(text)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


def test_all_parts_are_drawn_and_text_stays_text(page: Path, tmp_path: Path) -> None:
    document = browse(page, tmp_path, "--dump-dom")

    found = Texts(document)
    assert found.heads == [
        "Training job", "The job", "Loss", "Time of a step", "Where the time of a step goes",
        "What ranks did in a step", "The partition", "The suggestion", "Memory",
        "Bytes between ranks", "Hosts",
    ]  # fmt: skip
    assert found.drawn["svg"] >= 8
    assert document.count("<circle") == 3
    assert found.drawn["canvas"] == 2, "the step, and the ideal"
    assert found.drawn["img"] == 0
    assert "<title>caught</title>" not in document
    assert "Partition 0 computes 30.0 ms in a step" in document
    for name, predicted, measured in (
        ("time in smp.step, ms", "33.5", "48"), ("a partition works, % of it", "87.5", "46.9"),
        ("fullest partition: state and activations", "3 MB", "200 MB"),
        ("time, ms", "40", "50"), ("memory of the fullest rank", "250 MB", "200 MB"),
    ):  # fmt: skip
        cells = "</td>.*?>".join(map(re.escape, (name, predicted, measured)))
        assert re.search(cells, document), cells
    assert re.search(r"schedule\s+and without any transfer: [\d.]+ ms, of which each", document)


@pytest.mark.parametrize("scheme", GROUNDS)
def test_colours_follow_the_reader(page: Path, tmp_path: Path, scheme: str) -> None:
    picture = tmp_path / "page.png"

    browse(page, tmp_path, f"--screenshot={picture}", scheme=scheme)

    pixels = imread(picture)[..., :3]
    assert tuple(round(255 * part) for part in pixels[2, 2]) == GROUNDS[scheme]
    colours = {tuple(pixel) for row in pixels[::4, ::4] for pixel in row}
    assert len(colours) > 20, "charts are drawn, and no plain page"


def test_it_can_be_printed(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "page.pdf"

    browse(page, tmp_path, f"--print-to-pdf={paper}", "--no-pdf-header-footer")

    content = paper.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) in range(1, 9)
