import base64
import dataclasses
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from qtool.inspection.codes import Severity
from qtool.inspection.compare import compared
from qtool.inspection.nodes import Histogram
from qtool.report.html.charts import MAX_BINS, histogram
from qtool.report.html.comparison import comparison_page
from qtool.report.html.markup import Markup, element, joined
from qtool.report.html.page import report_page
from qtool.report.untrusted import shortened
from tests.report.hostile_names import NAMES, hostile_report
from tests.report.sample_reports import float_node, large_report, quantized_node, sample_nodes, sample_report

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "article", "div", "span", "p", "h1",
    "h2", "h3", "ul", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code",
    "figure", "figcaption", "i", "label", "input", "output", "script", "svg", "g", "line", "circle", "rect", "path",
    "text",    "use",
}  # fmt: skip


class Page(HTMLParser):
    """All that a page consists of: tags, attributes, texts outside style and script, and these two."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts, self.own, self.inside = Counter(), [], [], {}, None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += attrs
        self.inside = tag if tag in ("style", "script") else None

    def handle_endtag(self, _tag):
        self.inside = None

    def handle_comment(self, data):
        pytest.fail(f"a comment: {data!r}")

    def handle_data(self, data):
        if self.inside:
            self.own[self.inside] = data
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def page():
    return report_page(sample_report())


def test_it_holds_what_the_report_tells(page):
    text = " ".join(Page(page).texts)
    for word in ("models/int8.pt2", "unknown", "torch.ao (eager) 2.14.1", "QT303", "silu has no int8 kernel", "41200"):
        assert word in text
    for node in sample_nodes():
        assert node.name in text
    assert sample_report().findings[1].remedy in text


def test_each_node_is_a_row_with_numbers_to_sort_by_and_its_histograms():
    found = Page(report_page(sample_report()))
    ids = [value for name, value in found.attributes if name == "id"]
    assert found.tags["tbody"] == len(sample_nodes())
    assert len(ids) == len(set(ids))
    assert {"w1", "s1", "w7", "s7"} <= set(ids)
    assert {value for name, value in found.attributes if name == "href"} == {
        f"#{letter}{number}" for letter in "ws" for number in (1, 2, 3, 5, 7)
    }
    assert {"40", "0.0410", "41200"} & {value for name, value in found.attributes if name == "data-v"}


def test_it_can_be_read_without_its_script(page):
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    found = Page(without)
    hidden = [attribute for attribute in found.attributes if attribute[0] == "hidden"]
    assert found.tags["script"] == 0
    assert len(hidden) == 1  # the controls, which only the script can serve
    assert found.tags["tbody"] == len(sample_nodes())


@pytest.mark.parametrize("make", [report_page, lambda report: comparison_page(compared(report, report))])
def test_nothing_in_it_reaches_out(make):
    text = make(sample_report())
    found = Page(text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=", text.replace(found.own["script"], ""))
    assert all(value.startswith("#") for name, value in found.attributes if name in ("href", "xlink:href"))
    assert not any(name.startswith("on") or name in ("style", "src", "action") for name, _ in found.attributes)
    assert not re.search(r"fetch|XMLHttp|import|eval|innerHTML", found.own["script"])


def test_a_browser_is_told_to_run_its_own_script_alone(page):
    found = Page(page)
    [policy] = [value for name, value in found.attributes if name == "content" and "default-src" in value]
    digests = {
        kind: "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in found.own.items()
    }
    assert policy == (
        f"default-src 'none'; style-src '{digests['style']}'; script-src '{digests['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # The policy holds for what comes after it.
    assert page.index("Content-Security-Policy") < min(
        page.index("<style>"), page.index("<script>"), page.index("<title>")
    )


@pytest.mark.parametrize("text", NAMES)
def test_text_from_strangers_stays_text(text):
    report = hostile_report(text)
    harmless = Page(report_page(hostile_report("harmless")))
    for page in (report_page(report), comparison_page(compared(report, sample_report()))):
        page.encode()
        found = Page(page)
        assert set(found.tags) <= TAGS
        assert (found.tags["script"], found.tags["style"], found.tags["title"] > 0) == (1, 1, True)
        assert shortened(text) in "".join(found.texts)
        shown = "".join(found.texts).replace("\n", "")
        assert shown.isprintable()
    assert Page(report_page(report)).tags["tr"] == harmless.tags["tr"]


def test_the_page_of_a_large_model_stays_small():
    small, large = (report_page(large_report(count)).encode() for count in (50, 100))
    assert 40 * (len(large) - len(small)) + len(small) < 5_000_000  # 2000 nodes
    assert large.count(b"<tbody>") == 100
    assert b"The largest 20 of 100 layers" in large
    assert b"the 30 nearest of 100 layers" in large


def test_long_lists_of_findings_are_folded_and_whole():
    finding = sample_report().findings[1]
    findings = tuple(dataclasses.replace(finding, node=f"layer{index}", message=f"sum {index}") for index in range(50))
    page = report_page(sample_report(findings=findings))
    assert "<summary>42 more</summary>" in page
    assert all(f"sum {index}" in page for index in range(50))
    alike = tuple(dataclasses.replace(finding, node=f"layer{index}") for index in range(50))
    page = report_page(sample_report(findings=alike))
    assert "<summary>42 more nodes</summary>" in page
    assert all(f"layer{index}<" in page for index in range(50))


def test_a_report_on_nothing_is_a_page_too():
    empty = sample_report((), findings=(), bytes_by_dtype=(), duplicates=(), not_understood=())
    text = " ".join(Page(report_page(empty)).texts)
    assert "None." in text
    assert "Saturation margin" not in text


def test_columns_that_say_nothing_are_left_out():
    nodes = (float_node("act", "silu has no int8 kernel"),)
    page = report_page(sample_report(nodes, findings=()))
    keys = [value for name, value in Page(page).attributes if name == "data-key"]
    assert keys == ["number", "node", "op", "as", "size"]
    assert 'colspan="5"' in page


def test_a_comparison_tells_what_changed():
    nodes = sample_nodes()
    after = sample_report((quantized_node(0, name="stem", qmax=127), *nodes[1:]), name="after.pt2", findings=())
    text = " ".join(Page(comparison_page(compared(sample_report(), after))).texts)
    for words in ("different", "after.pt2", "input range", "0..255", "0..127", "Findings that went"):
        assert words in text


def test_elements_escape_what_is_no_markup():
    assert element("p", "a<b>&", Markup("<i>c</i>"), title='"x"', hidden=True, id=None) == (
        '<p title="&quot;x&quot;" hidden>a&lt;b&gt;&amp;<i>c</i></p>'
    )
    assert joined("<", Markup("<"), None) == "&lt;<"


@pytest.mark.parametrize("counts", [(0, 5, 0), tuple(range(100)), (1,), (10**12, 1), (0, 0)])
def test_a_histogram_shows_every_step_that_holds_anything(counts):
    drawn = histogram(Histogram(low=0, high=1, counts=counts), id_="x", css_class="spark")
    path = re.search(r' d="M0 24(.*)V24z"', drawn).group(1)
    steps = [(int(top), int(width)) for top, width in re.findall(r"V(\d+)h(\d+)", path)]
    tops = [top for top, width in steps for _ in range(width)]
    together = -(-len(counts) // MAX_BINS)
    sums = [sum(counts[start : start + together]) for start in range(0, len(counts), together)]
    assert [top < 24 for top in tops] == [count > 0 for count in sums]
    assert min(tops) == (1 if any(counts) else 24)


def test_severities_have_a_colour_each(page):
    style = Page(page).own["style"]
    assert all(f".{severity.value} {{ --tone" in style for severity in Severity)
