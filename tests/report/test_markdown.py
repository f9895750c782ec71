import dataclasses
import re

import pytest
from markdown_it import MarkdownIt

from qtool.inspection.compare import compared
from qtool.report.comparison_markdown import comparison_to_markdown
from qtool.report.markdown import MAX_CHARACTERS, code, to_markdown, words
from qtool.report.untrusted import shortened
from tests.report.hostile_names import NAMES, hostile_report
from tests.report.sample_reports import float_node, large_report, quantized_node, sample_nodes, sample_report

OURS = {"details", "summary", "b", "code"}


def parsed(text):
    return MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"]).parse(text)


def inline_tokens(text):
    return [child for token in parsed(text) for child in token.children or ()]


def test_it_says_first_what_came_out(golden):
    text = to_markdown(sample_report())
    golden("report.md", text)
    assert text.startswith("### 🟡 unknown: `models/int8.pt2`\n\ndoes not say what it was made for, 2 errors")


def test_a_comparison(golden):
    nodes = sample_nodes()
    after = sample_report((quantized_node(0, name="stem", qmax=127), *nodes[1:3], quantized_node(9)), name="after.pt2")
    golden("comparison.md", comparison_to_markdown(compared(sample_report(), after)))


@pytest.mark.parametrize("text", NAMES)
def test_text_from_strangers_makes_no_markup_link_or_mention(text):
    report = hostile_report(text)
    comparison = comparison_to_markdown(compared(report, sample_report()))
    for written in (to_markdown(report), comparison):
        tokens = inline_tokens(written)
        assert {token.type for token in tokens} <= {
            "text",
            "code_inline",
            "html_inline",
            "softbreak",
            "strong_open",
            "strong_close",
        }
        tags = [token.content for token in tokens if token.type == "html_inline"]
        tags += [
            tag
            for token in parsed(written)
            if token.type == "html_block"
            for tag in re.findall(r"<[^>]*>", token.content)
        ]
        assert {re.match(r"</?(\w+)( open)?>$", tag).group(1) for tag in tags} <= OURS
        assert [token.tag for token in parsed(written) if token.type == "heading_open"] == ["h3"]
        assert not {"fence", "hr", "blockquote_open", "ordered_list_open", "code_block"} & {
            token.type for token in parsed(written)
        }
        in_code = False
        for token in tokens:
            in_code = in_code if token.type != "html_inline" else token.content == "<code>"
            if token.type == "text" and not in_code:
                assert not re.search(r"[@#`|]|www\.|://|:\w+:|GH-1|owner/repo|0123abcdef", token.content), token.content


@pytest.mark.parametrize("text", [name for name in NAMES if name.strip()])
def test_text_in_code_is_the_text(text):
    [paragraph] = [token for token in parsed(f"x {code(text)}") if token.type == "inline"]
    shown = "".join(token.content for token in paragraph.children if token.type in ("text", "code_inline"))
    assert shown.removeprefix("x ").strip() == shortened(text).strip()


@pytest.mark.parametrize("text", NAMES)
def test_tables_keep_their_columns(text):
    tokens = parsed(to_markdown(hostile_report(text)))
    rows = "".join({"tr_open": "r", "td_open": "d", "th_open": "h"}.get(token.type, "") for token in tokens)
    assert set(rows.split("r")[1:]) == {"hh", "dd", "h" * 7, "d" * 7}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("silu has no int8 kernel", "silu has no int8 kernel"),
        ("0.001..0.0055", "0.001..0.0055"),
        ("see @someone", "`see @someone`"),
        ("GH-12", "`GH-12`"),
        ("www.example.com", "`www.example.com`"),
        ("a_b", "`a_b`"),
        ("deadbeef", "`deadbeef`"),
        ("owner/repo", "`owner/repo`"),
        ("a|b", "<code>a&#124;b</code>"),
    ],
)
def test_plain_words_stay_and_all_else_is_code(text, shown):
    assert words(text) == shown


def test_it_fits_into_a_comment_and_says_what_is_left_out():
    text = to_markdown(large_report(200))
    assert len(text) < MAX_CHARACTERS
    assert "200 nodes" in text
    finding = sample_report().findings[1]
    findings = tuple(
        dataclasses.replace(finding, code=f"QT{index}", message="|" * 300, node="|" * 300) for index in range(100)
    )
    text = to_markdown(sample_report(findings=findings))
    assert len(text) < MAX_CHARACTERS + 100
    assert "a comment has no room for more" in text
    assert text.count("<details") == text.count("</details>")


def test_many_nodes_are_cut_to_those_that_matter():
    nodes = (*large_report(100).nodes, float_node("act", "silu has no int8 kernel"))
    text = to_markdown(sample_report(nodes, findings=()))
    assert "<summary>1 that matter of 101 nodes</summary>" in text
    assert "`act`" in text
