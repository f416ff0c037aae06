"""`gemmlab report`: pages are complete, need no network, and work in a browser."""

import html.parser
import json
import math
import re
from pathlib import Path

import pytest
from machine import browser as browser_path
from machine import needs_browser
from reports import MOST_BYTES, json_of, parts_of, report

from gemmlab.cli.app import main
from gemmlab.core.packages import VL_CONVERT
from gemmlab.errors import MissingDependencyError
from gemmlab.kernels import ladder
from gemmlab.lab import records
from gemmlab.lab.bench import record as bench_record
from gemmlab.report.html import climb
from gemmlab.report.html.page import Page, Part, Section, embedded

ROOT = Path(__file__).parent.parent
H200 = ROOT / "benchmarks" / "h200"

RACY = ROOT / "tests" / "emulator" / "planted" / "race_tree.cu"

# A configuration of async-copy that compiles quickly.
TILE = "block_m=64 block_n=64 warp_m=16 warp_n=32 thread_m=4 thread_n=4 stages=2"

SOURCES: dict[str, list[object]] = {
    "climb": [H200 / "climb.json"],
    "emulated": [ROOT / "benchmarks" / "emulated" / "climb.json"],
    "flows": [H200 / "climb-vector-add.json"],
    "bench": [H200 / "bench" / "gemm"],
    "several runs": [ROOT / "benchmarks" / "h100" / "bench" / "gemm-course-large"],
    "rung": ["float4", "--size", "128"],
    "rung of a sum": ["sum:tree-strided", "--size", "4096"],
    "transpose": ["shared-padded", "--size", "128"],
    "asynchronous": ["async-copy", "--size", "128", "--set", TILE],
    "file": [RACY],
    "two benches": [H200 / "bench" / "transpose", H200 / "bench" / "transpose"],
    "two climbs": [H200 / "climb.json", ROOT / "benchmarks" / "emulated" / "climb.json"],
}
EMULATED = ("rung", "rung of a sum", "transpose", "asynchronous", "file")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in EMULATED else name for name in SOURCES
]


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Return the path of a source's page, which is written when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name):
        path = folder / f"{name}.html"
        if not path.exists():
            assert report(*SOURCES[name], "-o", path) == 0
        return path

    return write


class Links(html.parser.HTMLParser):
    """Collects ids, links and the sources of elements, and checks that elements are closed."""

    VOID = {"meta", "br", "link", "img", "input", "hr"}

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.sources, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.ids += [held["id"]] if "id" in held else []
        self.links += [held["href"]] if "href" in held else []
        self.sources += [held[key] for key in ("src", "srcset", "data") if key in held]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_well_formed_small_and_offline(page_of, name):
    text = page_of(name).read_text()
    assert len(text.encode()) <= MOST_BYTES
    found = Links()
    found.feed(text)
    assert not found.open and len(set(found.ids)) == len(found.ids)
    assert not found.sources and "@import" not in text and "url(" not in text.split("<script")[0]
    assert {link for link in found.links if not link.startswith("#")} == set()
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert "default-src 'none'" in text  # a browser refuses what the page would load


@pytest.mark.parametrize("name", NAMES)
def test_json_has_the_data_of_every_chart(page_of, name, capsys):
    held = json_of(capsys, *SOURCES[name])
    parts = [part for section in held["sections"] for part in section["parts"]]
    charts = [part for part in parts if part["kind"] == "chart"]
    text = page_of(name).read_text()
    assert text.count('class="plot"') == len(charts) > 0
    assert all(part["data"] for part in parts)


def test_a_page_has_the_numbers_of_its_records(capsys):
    held = json_of(capsys, H200 / "climb.json")
    of = {
        r.rung: r
        for r in records.read(H200 / "climb.json")
        if r.layout == "row" and r.shape["m"] == 4096
    }
    section = next(s for s in held["sections"] if s["title"] == "gemm 4096×4096×4096, row, normal")
    [bars] = [part["data"] for part in section["parts"] if part["title"] == "Speed, TFLOPS"]
    assert {row["rung"]: row["TFLOPS"] for row in bars} == {n: r.tflops for n, r in of.items()}
    [roof] = [part["data"] for part in section["parts"] if part["title"] == "Roofline"]
    float4 = next(row for row in roof["points"] if row["rung"] == "float4")
    assert float4["TFLOPS"] == of["float4"].tflops
    assert float4["FLOP/byte"] == pytest.approx(2 / (4 * (2 / 128 + 1 / 4096)), rel=1e-3)


def test_rungs_on_tensor_cores_have_their_own_roofs(capsys):
    held = json_of(capsys, ROOT / "benchmarks" / "h100" / "bench" / "gemm-course-large" / "6")
    [roof] = [
        part["data"]
        for section in held["sections"]
        for part in section["parts"]
        if part["title"] == "Roofline"
    ]
    points = {row["kernel"]: row for row in roof["points"]}
    peaks = roof["peaks, TFLOPS"]
    assert len(points) == 9 and len(peaks) == 3
    for name, peak in {"tensor-core": 989.5 / 3, "fp16x3": 989.5 / 3, "bf16x6": 989.5 / 6}.items():
        point = points[name]
        assert peaks[point["peak"]] == pytest.approx(peak)
        assert point["% of peak"] == pytest.approx(100 * point["TFLOPS"] / peak)
    assert points["cublas"]["peak"] == "FP32 peak" and peaks["FP32 peak"] < 66.9


def test_runs_of_one_case_have_bars_of_their_own_in_the_order_of_the_ladder(capsys):
    parts = parts_of(capsys, *SOURCES["several runs"])
    speeds, errors = parts["Speed, TFLOPS"], parts["Error"]
    names = [row["kernel"] for row in speeds]
    assert names == [row["kernel"] for row in errors] == [r["kernel"] for r in parts["All numbers"]]
    assert names[:6] == [f"cublas, run {run}" for run in range(1, 7)]
    known = [ladder.label(ladder.in_layout(rung, "course")) for rung in ladder.rungs("gemm")]
    assert names[6:] == known
    times = [read.gpu_median_s for read in benched(SOURCES["several runs"][0], "cublas")]
    assert [row["TFLOPS"] for row in speeds[:6]] == [2e-12 * 8192**3 / time for time in times]
    assert [row["% of baseline"] for row in speeds[:6]] == [100] * 6


def benched(folder, kernel):
    """The records of a kernel by date."""
    found = [record for record in bench_record.read(folder) if record.kernel == kernel]
    return sorted(found, key=lambda record: record.date)


@pytest.mark.slow
def test_a_rung_has_its_tile_accesses_and_code(capsys):
    held = json_of(capsys, *SOURCES["rung"])
    parts = {p["title"]: p for section in held["sections"] for p in section["parts"]}
    steps = {one["matrix"]: one for one in parts["The walk over K"]["data"]}
    assert len(steps["a"]["steps"]) == len(steps["b"]["steps"]) == 128 // 8
    assert steps["a"]["steps"][3] == dict(
        first_row=0, last_row=127, first_column=24, last_column=31
    )
    assert steps["b"]["steps"][3] == dict(
        first_row=24, last_row=31, first_column=0, last_column=127
    )
    owned = parts["Who writes which results"]["data"]
    assert (owned["warps"], owned["elements of thread 0"]) == (8, 64)
    assert owned["warp by element"][16] == "1" * 128
    load = parts["Global load a"]["data"]
    assert (load["cost"], load["bytes_used"]) == (16, 512)
    code = next(p["data"] for s in held["sections"] for p in s["parts"] if p["kind"] == "code")
    assert set(code) == {"Source", "PTX", "SASS"}
    total = sum(row.get("warp instr.", 0) for row in code["PTX"])
    assert total == sum(row.get("warp instr.", 0) for row in code["Source"]) > 0
    assert any("LDG.E.128" in row["text"] and row["warp instr."] for row in code["SASS"])


@pytest.mark.slow
def test_long_code_is_cut_to_what_runs_most(capsys, monkeypatch):
    monkeypatch.setattr("gemmlab.report.html.code._MOST_ROWS", 40)
    code = parts_of(capsys, "naive", "--size", "64", "--layout", "row")[""]  # asked for here alone
    for rows in code.values():
        shown = [row for row in rows if not row["text"].startswith("…")]
        assert len(shown) <= 40
    assert any(row["text"].startswith("FFMA") for row in code["SASS"])


def test_machine_code_has_its_waits(capsys):
    code = parts_of(capsys, "naive", "--size", "64")[""]
    assert any("[waits" in row["text"] for row in code["SASS"])


@pytest.mark.slow
def test_a_count_leads_to_the_line_with_most_of_it(page_of, capsys):
    rows = parts_of(capsys, *SOURCES["rung"])["At 128×128×128"]
    [loads] = [row for row in rows if row[""] == "shared load wavefronts"]
    name, _, number = loads["most of it in"].partition(":")
    source = (ROOT / "gemmlab" / "kernels" / "gemm" / name).read_text().splitlines()
    assert "sA" in source[int(number) - 1] or "sB" in source[int(number) - 1]
    assert f'href="#line-{name}-{number}"' in page_of("rung").read_text()


KERNEL = """//! gemmlab problem=vector-add args=a,b,c,n block=64 grid=ceil_div(n,64)
extern "C" __global__ void f(const float *a, const float *b, float *c, long long n) {
  long long i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i] SUFFIX;
}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("judged_here")
@pytest.mark.parametrize(("suffix", "verdict"), [("", "pass"), ("+ 1", "wrong answer")])
def test_a_judgement_has_a_page(tmp_path, capsys, suffix, verdict):
    file, judged = tmp_path / "k.cu", tmp_path / "judged.json"
    file.write_text(KERNEL.replace("SUFFIX", suffix))
    with pytest.raises(SystemExit):
        main(["judge", str(file), "--emulated", "--seed", "1", "--json"])
    judged.write_text(capsys.readouterr().out)
    held = json_of(capsys, judged)
    assert held["numbers"]["verdict"] == verdict
    titles = {p["title"] for section in held["sections"] for p in section["parts"]}
    assert "Every launch" in titles and ("Wrong elements" in titles) == bool(suffix)
    assert report(judged, "-o", tmp_path / "judged.html") == 0
    judged.write_text(json.dumps(json.loads(judged.read_text()) | {"steps": [{}]}))
    assert report(judged, "-o", tmp_path / "judged.html") == 2


@pytest.mark.slow
def test_an_explanation_gives_the_page_of_its_rung(tmp_path, capsys):
    command = ["tile-1d", "--size", "64", "--layout", "course"]
    with pytest.raises(SystemExit):
        main(["explain", *command, "--gpu", "A100", "--json"])
    file = tmp_path / "explained.json"
    file.write_text(capsys.readouterr().out)
    held = json_of(capsys, file)
    assert held["title"] == "tile-1d, explained"
    assert {"gemm 64×64×64", "course layout", "A100 80GB"} <= set(held["facts"])


def test_cases_that_both_runs_have_come_first(capsys):
    held = json_of(capsys, H200 / "bench" / "gemm", ROOT / "benchmarks" / "h100" / "bench" / "gemm")
    both = ["charts" if len(section["parts"]) == 2 else "" for section in held["sections"]]
    assert both == 4 * ["charts"] + 6 * [""]
    assert list(held["numbers"])[-2:] == ["only before", "only after"]
    words = {row["after is"] for row in held["sections"][-1]["parts"][0]["data"]}
    assert words == {"only before"}


def test_host_programs_have_time_lines(capsys):
    parts = parts_of(capsys, *SOURCES["flows"])
    rows = parts["What runs when"]
    assert {"explicit, stream 0", "managed, host"} <= {row["where"] for row in rows}
    assert all(row["start, ms"] <= row["end, ms"] for row in rows)


@pytest.mark.slow
def test_findings_are_at_their_lines(page_of, capsys):
    held = json_of(capsys, RACY)
    [findings] = [p for s in held["sections"] if s["title"] == "Findings" for p in s["parts"]]
    assert findings["data"]
    text = page_of("file").read_text()
    for finding in findings["data"]:
        number = finding["line"].rpartition(":")[2]
        assert f'href="#line-{RACY.name}-{number}"' in text
        line = re.search(rf'<tr id="line-{RACY.name}-{number}"[^>]*class="bad"', text)
        assert line and finding["kind"] in text[line.end() :].split("</tr>", 2)[1]


def test_text_of_records_cannot_become_markup():
    [first, *_] = records.read(ROOT / "benchmarks" / "emulated" / "climb.json")
    evil = "</script><script>alert(1)</script>"
    made = climb.page([records.Record(**(first.__dict__ | {"rung": evil}))]).markup()
    assert evil not in made and "<\\/script>" in made
    assert "</" not in embedded({"a": evil})


def test_records_of_two_kinds_are_not_compared(capsys):
    assert report(H200 / "climb.json", H200 / "bench" / "gemm") == 2
    assert "cannot compare records of climb" in capsys.readouterr().err


def test_without_the_library_of_charts_the_error_says_what_to_install(monkeypatch):
    missing = MissingDependencyError(f"run: {VL_CONVERT.install}")
    monkeypatch.setattr("gemmlab.report.html.page.library", lambda: (_ for _ in ()).throw(missing))
    chart = Part("chart", "", "", [], "")
    with pytest.raises(MissingDependencyError, match=r"gemmlab\[report\]"):
        Page("", [], {}, [Section("a", "", [chart])]).markup()
    table = Part("table", "", "", [], "")
    assert Page("", [], {}, [Section("a", "", [table])]).markup()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield found
        found.close()


def opened(browser, path, said, width=1200, scheme="light"):
    size = {"width": width, "height": 900}
    # A click would wait for a second until the page has scrolled.
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
    return page


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("name", [name for name in SOURCES if name != "bench"])  # as several runs
def test_a_browser_draws_every_chart_and_says_nothing(browser, page_of, name):
    path = page_of(name)
    said: list[str] = []
    page = opened(browser, path, said)
    count = (
        "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('svg path').length)"
    )
    drawn = page.evaluate(count)
    assert drawn and all(drawn)
    assert said == [path.as_uri()]
    page.close()


@pytest.mark.slow
@needs_browser
def test_both_themes_a_phone_and_links(browser, page_of):
    said: list[str] = []
    colours = []
    for scheme in ("light", "dark"):
        page = opened(browser, page_of("flows"), said, scheme=scheme)
        style = "getComputedStyle(document.querySelector('{}')).{}"
        body, bar = style.format("body", "color"), style.format(".plot .mark-rect path", "fill")
        read = f"[{body}, {bar}]"
        before = page.evaluate(read)
        page.click("#theme")
        colours.append((before, page.evaluate(read)))
        page.close()
    (light, to_dark), (dark, to_light) = colours
    assert light == to_light and dark == to_dark
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page = opened(browser, page_of("flows"), said, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    link = page.locator("nav a").nth(3)
    folded = page.locator(f"section{link.get_attribute('href')} > details")
    assert folded.get_attribute("open") is None
    link.click()
    section = page.locator(f"section{link.get_attribute('href')} > details[open]")
    section.wait_for()
    assert folded.locator(".plot").first.bounding_box()["width"] > 250
    page.close()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("name", "width"), [("several runs", 1200), ("several runs", 390)])
def test_no_text_of_a_roofline_covers_another(browser, page_of, name, width):
    page = opened(browser, page_of(name), [], width=width)
    plot = page.locator("figure", has_text="Roofline").first.locator(".plot")
    texts = [
        (one.text_content(), one.bounding_box()) for one in plot.locator(".mark-text text").all()
    ]
    assert "fp16x3" in " ".join(text for text, _ in texts) and len(texts) > 12
    for index, (text, a) in enumerate(texts):
        for other, b in texts[:index]:
            across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
            down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
            assert across <= 0 or down <= 0.2 * a["height"], (text, other)
    page.close()


@pytest.mark.parametrize("name", ["bench", "several runs"])
def test_a_name_is_nearest_to_its_own_point(page_of, name):
    specs = re.findall(r'<script type="application/json">(.*?)</script>', page_of(name).read_text())
    rooflines = [spec for spec in map(json.loads, specs) if '"FLOP/byte"' in json.dumps(spec)]
    for spec in rooflines:
        low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
        pixels = spec["height"] / math.log(high / low)
        points = next(x for x in spec["layer"] if x["mark"]["type"] == "point")["data"]["values"]
        named = [row for x in spec["layer"] for row in x["data"]["values"] if "align" in row]
        for one in named:
            for other in points:
                apart = pixels * math.log(one["TFLOPS"] / other["TFLOPS"])  # from top to bottom
                if other["FLOP/byte"] == one["FLOP/byte"] and abs(apart) > 6:
                    assert abs(apart - one["dy"]) >= abs(one["dy"]) - 1, (one["names"], other)
    assert len(rooflines) > 0


@pytest.mark.slow
@needs_browser
def test_the_pointer_shows_the_number(browser, page_of):
    page = opened(browser, page_of("several runs"), [])
    page.locator(".plot .mark-rect path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    shown = page.inner_text("#vg-tooltip-element")
    assert "cublas, run 1" in shown and re.search(r"TFLOPS\s*:?\s*\d", shown)
    page.close()


@pytest.mark.slow
@needs_browser
def test_a_drawing_leads_to_its_line_and_a_line_to_its_code(browser, page_of):
    said: list[str] = []
    page = opened(browser, page_of("rung"), said)
    source = page.locator("[data-pane=Source] .rows")
    hottest = source.get_by_text("rC[i, j] += rA[i] * rB[j]").bounding_box()
    pane = source.bounding_box()  # it begins at the line with most stalls
    assert pane["y"] < hottest["y"] < pane["y"] + pane["height"]
    page.locator("#access-0 .at a").click()
    page.wait_for_function("document.querySelectorAll('tr.lit').length > 2")
    lit = "[...document.querySelectorAll('.pane')].map(p => p.querySelectorAll('tr.lit').length)"
    assert all(page.evaluate(lit))
    page.locator("tr.lit a.see").first.click()
    page.wait_for_function("location.hash.startsWith('#access-')")
    page.locator("[data-pane=SASS] tr[data-at]").nth(9).click()
    assert page.evaluate(lit)[0] == 1
    assert said == [page_of("rung").as_uri()]
    page.close()
