"""The report: any run gives a whole page, what is missing is said once, one view cannot sink it."""

import io
import re
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

from analysis import plots, units
from analysis.report import build as builder
from analysis.report.build import UNJUDGED, build, inline, tabulate
from analysis.report.question import GROUPS, Answer, Plot, Question, RunData, questions
from results.schema import Case
from results.store import BASELINES, load
from tests.analysis.made_up import slower
from tests.analysis.page import Page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text(report):
    return (report / "index.html").read_text(encoding="utf-8")


def test_the_page_nests_and_its_anchors_resolve(text):
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    anchors = [link[1:] for link in page.links if link.startswith("#")]
    assert len(anchors) > 10
    assert set(anchors) <= set(page.ids)


def test_nothing_is_fetched_from_another_host(text):
    page = Page(text)
    assert [a for a in page.addresses if re.match(r"(\w+:)?//", a)] == []
    assert "url(http" not in text
    assert "@import" not in text


def test_first_screen_says_gpu_date_speed_share_and_health(text):
    head = text[text.index("<header") : text.index("</header>")]
    for part in ("Synthetic GPU", "2000-01-01", "918 GB/s", "91.8%", "Nothing is wrong"):
        assert part in head


def article_of(question, text):
    article = text[text.index(f'<article id="{question.slug}"') :]
    return article[: article.index("</article>")]


def test_every_axpy_question_is_answered_with_a_figure(text, report):
    asked = [question for question in questions() if question.families == ("axpy",)]
    assert len(asked) >= 5
    for question in asked:
        article = article_of(question, text)
        assert '<svg xmlns="http://www.w3.org/2000/svg"' in article
        assert "How this was measured" in article
        assert "<table>" in article
        assert 'class="mark' in article
        for suffix in (".svg", ".png"):
            assert (report / "figures" / f"{question.slug}{suffix}").stat().st_size > 1000


def test_every_figure_has_an_alternative_text(text):
    for svg in re.findall(r"<svg [^>]*>", text):
        assert re.search(r'role="img" aria-label="[^"]{20,}"', svg)


def test_it_is_small(report):
    assert (report / "index.html").stat().st_size < 6e6


def test_source_links_lead_to_the_checkout(text, report):
    links = re.findall(r'href="([^"]*kernels/axpy\.py)#L\d+"', text)
    if (ROOT / "kernels" / "axpy.py").is_file():
        assert links
    for link in links:
        assert (report / link).resolve().is_file()


def answers(data):
    return {
        q.title: q.answer(data) for q in questions() if set(q.families) <= set(data.frame["family"])
    }


def test_every_verdict_has_its_claim_before_the_answer(synthetic_run, text):
    found = answers(RunData(load(synthetic_run)))
    judged = 0
    for question in questions():
        if (answer := found.get(question.title)) is None:
            continue
        article = article_of(question, text)
        if answer.verdict in UNJUDGED:
            assert "Claim:" not in article
            continue
        judged += 1
        assert question.claim, question.title
        shown = f'<p class="claim"><b>Claim:</b> {builder.marked(question.claim)}</p>'
        assert article.index(shown) < article.index('<p class="answer">')
    assert judged >= 3


def test_a_claim_is_a_sentence():
    for question in questions():
        if question.claim:
            assert question.claim[0].isupper() or question.claim[0] in "`0123456789"
            assert question.claim.endswith("."), question.title
            assert len(question.claim) <= 140, question.title


def test_the_first_screen_says_who_claims(text):
    head = text[text.index("<header") : text.index("</header>")]
    assert "course notes" in head
    assert "CUDA C++ Programming Guide" in head


def test_answers_come_from_the_data(synthetic_run):
    """The generator's decrees: 64% of 0.92 for 64 threads; 100 GB/s apart; a knee by arithmetic."""
    found = answers(RunData(load(synthetic_run)))
    block = found["Why 256 threads a block, not 128 or 512?"]
    assert block.verdict == "contradicted"
    assert "differ by at most 0.0%" in block.text
    assert "32 threads up to 40.0% (32 warps an SM)" in block.text
    peers = found["Is a Python kernel as fast as libraries and CUDA C?"]
    assert "1.31× that of cuBLAS" in peers.text
    same = found["Does twice the arithmetic leave AXPY's time unchanged?"]
    assert same.verdict == "confirmed"
    assert "twice the arithmetic takes 1.000×" in same.text


def test_the_knee_is_where_the_decree_puts_it(synthetic_run):
    from analysis.views.axpy_arithmetic import _series, parameters

    data = RunData(load(synthetic_run))
    knee = _series(data)["fma_independent", "full"].knee()
    # bytes / (share of the peak) = FMAs / rate: 12 B / 0.8 TB/s over 1 / 12.8 T FMA/s.
    assert knee == pytest.approx(12 / 0.8e12 * 12.8e12, rel=0.01)
    known = parameters(data)
    assert known.dram_latency.value == 600
    assert known.fma_rate.value == 4
    assert known.dram_bandwidth.value == pytest.approx(0.92e12, rel=0.01)


def test_other_data_give_the_other_verdict(synthetic_run, record):
    """Where 512 threads lose 10% and twice the arithmetic costs 20%, the report says so."""
    cases = []
    for case in load(synthetic_run).files[0].cases:
        if case.family == "axpy":
            lame = case.params.get("block") == 512 or case.params.get("extra_fma", 0) >= 1
            cases.append(slower(case, 1.2) if lame else case)
    found = answers(RunData(load(record(cases))))
    assert found["Why 256 threads a block, not 128 or 512?"].verdict == "confirmed"
    same = found["Does twice the arithmetic leave AXPY's time unchanged?"]
    assert same.verdict == "contradicted"
    assert same.text.startswith("No: twice the arithmetic takes 1.20×")


@pytest.mark.parametrize(
    "cases",
    [
        [],
        [Case("axpy", "vector", {"n": 1, "dtype": "float32", "block": 64}, "skipped", reason="x")],
        [Case("axpy", "vector", {"n": 1, "dtype": "float32", "block": 64}, "failed", reason="x")],
        [Case("other", "kernel", {}, "ok")],
    ],
    ids=["none", "skipped", "failed", "foreign"],
)
def test_a_run_with_nothing_to_show_still_has_a_page(cases, record, tmp_path):
    errors, _ = build([load(record(cases))], tmp_path / "report")
    assert errors == []
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    Page(text)
    assert text.count("Why 256 threads a block") == 1  # in the list of what is not in this run
    assert "lacks the cases that it needs" in text


def test_one_kernel_one_process_is_enough(synthetic_run, record, tmp_path):
    """A run of the quick profile, cut short: no peers, no extra FMAs, no chase, no end."""
    cases = [
        case
        for case in load(synthetic_run).files[0].cases
        if case.kernel == "vector" and case.params["dtype"] == "float32"
    ]
    recording = load(record(cases, end=False))
    errors, problems = build([recording], tmp_path / "report")
    assert errors == []
    assert len(problems) == 1
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "This run is not whole" in text
    assert "no end line" in text
    assert "Why 256 threads" in text


def test_small_blocks_that_start_as_fast_as_empty_ones_are_told_apart(synthetic_run, record):
    """With 2.5 G blocks a second at the most, one element a thread needs blocks of 160 threads."""
    rate = 2.5e9
    cases = []
    for case in load(synthetic_run).files[0].cases:
        if case.kernel == "monolithic" and case.params["block"] < 160:
            case = slower(case, case.launch.grid[0] / rate / case.samples.time_s[0])
        cases.append(case)
    found = answers(RunData(load(record(cases))))["Why 256 threads a block, not 128 or 512?"]
    assert found.verdict == "contradicted"
    assert "while the monolithic form does need 256" in found.text
    assert "no more than 2.50 billion blocks a second" in found.text
    assert "blocks of 32, 64, 96 and 128 threads" in found.text


def test_the_first_screen_answers_what_is_asked_first(text):
    head = text[text.index("<header") : text.index("</header>")]
    assert '<a href="#02-why-256-threads-a-block-not-128-or">Why 256 threads?</a>' in head
    assert "It need not be 256" in head


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        ("A takes 1.5 cycles; B none.", "A takes 1.5 cycles."),
        ("Only this.", "Only this."),
    ],
)
def test_a_lead_is_the_first_clause(text, first):
    assert builder.lead(text) == first


def test_code_is_marked_and_the_rest_escaped():
    assert builder.marked("a `syncwarp` <b>") == "a <code>syncwarp</code> &lt;b&gt;"


@pytest.mark.parametrize(
    ("label", "tick"),
    [
        ("1.00 TB/s", "1 TB/s"),
        ("0 B/s", "0"),
        ("0.00×", "0"),
        ("0.60×", "0.6×"),
        ("100.0%", "100%"),
        ("12.5%", "12.5%"),
        ("1,000", "1,000"),
        ("2^28", "2^28"),
    ],
)
def test_ticks_have_no_idle_zeros(label, tick):
    assert plots.short(label) == tick


def test_ticks_leave_room_for_long_labels():
    axes = plots.figure()[1]
    values = [1 << e for e in range(12, 33)]
    axes.plot(values, values)
    plots.log2_axis(axes, values, units.size)
    assert 4 <= len(axes.get_xticks()) <= 9
    plots.log2_axis(axes, values, lambda value: "1")
    assert len(axes.get_xticks()) > 9


def test_a_legend_takes_the_columns_that_fit():
    figure, axes = plots.figure()
    for name in (
        "short",
        "a name that is long enough to fill half of it",
        "another such name, long",
    ):
        axes.plot([0, 1], [0, 1], label=name)
    plots.legend(axes)
    figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().width < figure.bbox.width


def test_the_same_run_gives_the_same_page(synthetic_run, tmp_path, one_question):
    pages = []
    for name in "ab":
        build([load(synthetic_run)], tmp_path / name)
        pages.append((tmp_path / name / "index.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]


def test_figures_of_an_earlier_page_do_not_stay(synthetic_run, tmp_path, one_question):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "99-a-question-of-old.svg").write_text("<svg/>")
    (tmp_path / "figures" / "mine.svg").write_text("<svg/>")
    build([load(synthetic_run)], tmp_path)
    left = {path.name for path in (tmp_path / "figures").iterdir()}
    assert left == {"mine.svg", *(f"{one_question[0].slug}.{kind}" for kind in ("svg", "png"))}


@pytest.mark.thorough
def test_several_runs_are_set_side_by_side(synthetic_run, record, tmp_path, one_question):
    other = load(record(load(synthetic_run).files[0].cases[2:]))
    assert build([load(synthetic_run), other], tmp_path / "report") == ([], [])
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert text.count("<h4>synthetic</h4>") == text.count("<h4>run</h4>") == 1
    assert text.count('<section class="run"') == 2


def test_digests_ignore_the_last_bits_and_nothing_else():
    data = pd.DataFrame({"x": [1.0, 2.0], "k": ["a", "b"]})
    assert plots.digest(data) == plots.digest(data * 1)
    assert plots.digest(data.assign(x=data["x"] * (1 + 1e-9))) == plots.digest(data)
    assert plots.digest(data.assign(x=data["x"] * (1 + 1e-4))) != plots.digest(data)
    assert plots.digest(data.rename(columns={"x": "y"})) != plots.digest(data)
    assert plots.digest(data[::-1]) == plots.digest(data)


def test_every_row_of_the_claims_has_one_chapter():
    rows = sorted(row for rows in GROUPS.values() for row in rows)
    assert rows == list(range(1, 29))


def test_every_question_has_a_place_of_its_own():
    slugs = [question.slug for question in questions()]
    assert len(slugs) == len(set(slugs))
    readme = [question.readme for question in questions() if question.readme]
    assert len(readme) == len(set(readme))
    for question in questions():
        assert "?" in question.title
        assert question.group in GROUPS


def test_the_theme_does_not_leak():
    before = matplotlib.rcParams["svg.fonttype"]
    with plots.theme():
        assert matplotlib.rcParams["svg.fonttype"] == "none"
    assert matplotlib.rcParams["svg.fonttype"] == before


def test_two_inlined_figures_share_no_id():
    with plots.theme():
        figure, axes = plots.figure()
        axes.plot([1, 2], [1, 2], marker="o")
        text = plots.svg(figure)
    both = inline(text, "one", "a & b") + inline(text, "two", "c")
    page = Page(both)
    assert len(page.ids) == len(set(page.ids))
    references = set(re.findall(r'(?:url\(#|href="#)([^")]+)', both))
    assert references
    assert references <= set(page.ids)
    assert 'aria-label="a &amp; b"' in both
    assert plots.INK not in both


def test_table_cells_are_pretty_and_sort_by_value():
    frame = pd.DataFrame(
        {"kernel": ["a", "b"], "n": [1 << 28, 1 << 9], "bandwidth": [1.0e12, float("nan")]}
    )
    table = tabulate(frame)
    assert table.columns == [("kernel", False), ("n", True), ("bandwidth", True)]
    assert table.rows == [
        [("a", "a"), ("2²⁸", 1 << 28), ("1.00 TB/s", 1.0e12)],
        [("b", "b"), ("512", 512), ("", "")],
    ]


def test_an_answer_is_escaped(synthetic_run, tmp_path, monkeypatch):
    evil = Answer("<script>alert(1)</script>", "measured", (), method="<i>")
    monkeypatch.setattr(builder, "questions", lambda: [Question(1, "<q>?", (), lambda _: evil)])
    build([load(synthetic_run)], tmp_path)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "&lt;q&gt;?" in text


def test_a_plot_draws_its_own_data_and_nothing_else(synthetic_run):
    """The digest is of what is drawn only if drawing needs no more than the data."""
    data = RunData(load(synthetic_run))
    with plots.theme():
        for answer in answers(data).values():
            for plot in answer.plots if answer else ():
                assert isinstance(plot, Plot)
                copy = pd.read_csv(io.StringIO(plot.data.to_csv(index=False)))
                assert plots.svg(plot.draw(copy))


@pytest.mark.thorough
def test_every_answer_of_the_recorded_run_has_a_figure_and_its_numbers():
    found = answers(RunData(load(BASELINES / "nvidia-h200")))
    assert sum(answer is not None for answer in found.values()) >= 50
    for title, answer in found.items():
        if answer is not None:
            assert answer.plots, title
            assert answer.table is not None, title
            assert answer.sources, title
    for question in questions():
        if answer := found.get(question.title):
            assert bool(question.claim) == (answer.verdict not in UNJUDGED), question.title
