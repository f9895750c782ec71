"""Text that would act where it is not escaped, and reports that hold it wherever a file can put text."""

from __future__ import annotations

import dataclasses

from qtool.inspection.codes import Finding, Severity
from qtool.inspection.findings import Duplicate, Target
from tests.report.sample_reports import quantized_node, sample_report

NAMES = (
    "<script>document.title='owned'</script>",
    "'\"><img src=x onerror=alert(1)>",
    "</style></script><h1>big</h1><!--",
    "]]>&lt;b&gt;&amp;\x00\x1b[2J\u202e\ud800",
    "[link](https://example.com) ![x](//example.com/x.png) <https://example.com> www.example.com",
    "@everyone #123 GH-1 :smile: owner/repo#1 0123abcdef0123abcdef",
    "`code` ``two`` | cell \\| \\\\| *b* _i_ ~~s~~ $x$",
    "\n\n# title\n- list\n1. one\n> quote\n```\n---\n| a | b |\n|---|---|\n",
    "<details open><summary>x</summary></details>",
    "conv[1] [bold]x[/bold] [/]",
    "層" * 40,
    " ",
    "",
    "`",
    "\\",
    "|",
)


def hostile_report(text: str):
    """Return a report with the text in every place that a file fills."""
    node = quantized_node(3, name=text, target=text, backends=(text,), reads=(text, text), activation=text, why=text)
    tensors = tuple(dataclasses.replace(each, name=text, dtype=text) for each in node.tensors[2:])
    nodes = (
        dataclasses.replace(node, tensors=node.tensors[:2] + tensors, packed_class=text),
        quantized_node(4, name=f"{text} {text}", op=None, target=text),
    )
    findings = tuple(
        Finding(code=f"QT10{index}", severity=severity, node=where, message=text, remedy=text)
        for index, (severity, where) in enumerate([(each, where) for each in Severity for where in (text, None)])
    )
    return sample_report(
        nodes,
        name=text,
        findings=findings,
        producer=text,
        form=text,
        target=Target(backend=text, isa=None, is_asked=True),
        bytes_by_dtype=((text, 5),),
        duplicates=(Duplicate(names=(text, text), num_bytes=1, wasted_bytes=1),),
        not_understood=(text,),
    )
