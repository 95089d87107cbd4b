"""The page in a browser: no error, every figure seen, tables sort, links lead somewhere."""

import shutil

import pytest

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = api.expect
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS = (400, 1400)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        shutil.which(CHROMIUM) is None, reason=f"no {CHROMIUM}: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(params=WIDTHS)
def page(request, browser, report):
    """The page at one width; the test fails on any console message or foreign request."""
    seen = []
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    opened.on("console", lambda message: seen.append(message.text))
    opened.on("pageerror", lambda error: seen.append(str(error)))
    opened.on("request", lambda asked: asked.url.startswith("file:") or seen.append(asked.url))
    opened.goto((report / "index.html").as_uri())
    yield opened
    opened.close()
    assert seen == []


def test_nothing_overflows(page):
    """Neither closed nor with every table open."""
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    assert page.evaluate(fits)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate(fits)


def test_every_figure_is_seen_and_legible(page):
    figures = page.locator("figure svg")
    assert figures.count() >= 5
    width = page.viewport_size["width"]
    for index in range(figures.count()):
        box = figures.nth(index).bounding_box()
        assert box["height"] > 100
        assert min(box["width"], width) >= 0.75 * min(width, 550)
        assert box["x"] >= 0
        room = figures.nth(index).locator("xpath=..").evaluate("figure => figure.clientWidth")
        scrolls = figures.nth(index).evaluate("svg => svg.classList.contains('wide')")
        assert scrolls or box["x"] + box["width"] <= width
        assert box["x"] + min(box["width"], room) <= width
    sizes = page.evaluate(
        """[...document.querySelectorAll("figure svg text")].map(text =>
           parseFloat(getComputedStyle(text).fontSize)
           * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b))"""
    )
    assert min(sizes) >= 6.5


def test_every_text_of_a_figure_lies_inside_it(page):
    outside = page.evaluate(
        """[...document.querySelectorAll("figure svg")].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll("text")].filter(text => {
               const box = text.getBoundingClientRect();
               return box.left < frame.left - 1 || box.right > frame.right + 1
                 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
             }).map(text => svg.getAttribute("aria-label") + ": " + text.textContent);
           })"""
    )
    assert outside == []


def test_no_two_texts_of_a_figure_overlap(page):
    overlaps = page.evaluate(
        """[...document.querySelectorAll("figure svg")].flatMap(svg => {
             const texts = [...svg.querySelectorAll("text")]
               .map(text => [text.textContent, text.getBoundingClientRect()])
               .filter(([, box]) => box.width > 0);
             return texts.flatMap(([one, a], i) => texts.slice(i + 1)
               .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.3 * a.height)
               .map(([two]) => `${svg.getAttribute("aria-label")}: ${one} / ${two}`));
           })"""
    )
    assert overlaps == []


def test_tables_sort_both_ways(page):
    numbers = page.locator("details.numbers").first
    numbers.locator("summary").click()
    head = numbers.locator("th", has_text="time").first
    column = head.evaluate("head => head.cellIndex")

    def values():
        cells = numbers.locator("tbody tr").evaluate_all(
            "(rows, c) => rows.map(row => row.cells[c].dataset.v)", column
        )
        return [float(cell) for cell in cells if cell]

    head.locator("button").click()
    assert values() == sorted(values())
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert values() == sorted(values(), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"


def test_a_table_is_copied_or_selected(page):
    numbers = page.locator("details.numbers").first
    numbers.locator("summary").click()
    button = numbers.locator(".copy")
    button.click()
    expect(button).not_to_have_text("Copy")
    if button.text_content() != "Copied":
        assert "kernel" in page.evaluate("getSelection().toString()")


def test_anchors_lead_to_what_they_name(page):
    links = page.locator("nav a")
    assert links.count() >= 8
    for target in links.evaluate_all("links => links.map(link => link.hash)"):
        assert page.locator(f"[id='{target[1:]}']").count() == 1
    if not page.locator("nav details").evaluate("d => d.open"):
        page.locator("nav summary").click()
    page.locator("nav a", has_text="Glossary").click()
    expect(page.locator("#glossary h2")).to_be_in_viewport()


def test_the_keyboard_reaches_the_answers(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answers"
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html#content")  # the browser follows a link in its own time


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_have_contrast_in_light_and_dark(browser, report, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((report / "index.html").as_uri())
    text, ground = page.evaluate(
        """[getComputedStyle(document.querySelector("figure svg text")).fill,
            getComputedStyle(document.body).backgroundColor]"""
    )
    page.close()

    def luminance(color):
        parts = [int(p) / 255 for p in color[color.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dim, bright = sorted((luminance(text), luminance(ground)))
    assert (bright + 0.05) / (dim + 0.05) >= 7  # WCAG 2.2, level AAA
