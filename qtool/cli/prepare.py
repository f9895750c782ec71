"""`qtool prepare CONFIG`: plan, insert fake-quantize modules, calibrate."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qtool.cli.config_file import read_config
from qtool.cli.messages import say
from qtool.cli.options import config_argument, json_option, output_option, seed_option, set_option, traceback_option
from qtool.cli.progress import progress
from qtool.cli.streams import STREAM, check_output, claimed_stdout, write_output
from qtool.cli.summary import check_one_result, json_text, summary, summary_lines
from qtool.cli.terminal import has_color, width_of
from qtool.config.paths import resolve_path
from qtool.errors import UsageError

if TYPE_CHECKING:
    from qtool.cli.streams import Stdout
    from qtool.config.schema import Config

EXAMPLES = """\b
Examples:
  qtool prepare model.yaml --dry-run
  qtool prepare model.yaml -o prepared.pt2
  qtool prepare model.yaml -o - | qtool convert - -o int8.pt2
"""


@click.command("prepare", epilog=EXAMPLES)
@config_argument
@output_option()
@click.option("--dry-run", is_flag=True, help="Print the plan and write nothing.")
@json_option
@seed_option
@set_option
@traceback_option
def command(config: str, output: str | None, dry_run: bool, as_json: bool, seed: int, settings: tuple[str, ...]) -> int:
    """Plan the model of CONFIG for its backend, insert fake-quantize modules, and calibrate on its data."""
    if dry_run:
        _check_no_output(output)
        _print_plan(read_config(config, settings), as_json=as_json, seed=seed)
        return 0
    if output is None:
        msg = "where does the model go? Give -o FILE, or -o - for a pipe; --dry-run shows the plan and writes nothing"
        raise UsageError(msg)
    check_one_result(output, as_json=as_json)
    settled = read_config(config, settings)
    check_output(output, sources=sources_of(config, settled))
    with claimed_stdout() as stdout:
        _prepare(settled, output, stdout, as_json=as_json, seed=seed)
    return 0


def sources_of(config: str, settings: Config) -> list[Path]:
    """Return the files that the command reads and somebody made by hand or training."""
    sources = [*([] if config == STREAM else [Path(config)]), *settings.document.bases]
    if settings.model is not None and settings.model.checkpoint is not None:
        sources.append(resolve_path(settings.model.checkpoint, settings.base))
    return sources


def _prepare(settings: Config, output: str, stdout: Stdout, *, as_json: bool, seed: int) -> None:
    from qtool.workflows.prepare import prepare_from_config
    from qtool.workflows.save import save
    from qtool.workflows.seed import seed_everything

    seed_everything(seed)
    with progress("calibrate") as on_batch:
        prepared = prepare_from_config(settings, on_batch=on_batch)
    buffer = io.BytesIO()
    save(prepared, buffer)
    write_output(output, buffer.getbuffer(), stdout)
    facts = {"output": output, "bytes": len(buffer.getbuffer()), **summary(prepared.plan)}
    if settings.data.calibrate is None and settings.quantize.mode == "ptq":
        say("note: not calibrated: the config has no data.calibrate, so `convert` will refuse the model")
    say(summary_lines(output, len(buffer.getbuffer()), facts))
    if settings.quantize.mode == "qat":
        say("note: training comes next: `qtool train CONFIG --prepared FILE`, or a loop of your own (docs/training.md)")
    if as_json:
        stdout.write_text(json_text(facts))


def _print_plan(settings: Config, *, as_json: bool, seed: int) -> None:
    with claimed_stdout() as stdout:
        from qtool.report.plan_table import render_plan
        from qtool.stamp.plan_json import plan_to_json
        from qtool.workflows.prepare import plan_from_config
        from qtool.workflows.seed import seed_everything

        seed_everything(seed)
        plan = plan_from_config(settings)
        if as_json:
            stdout.write_text(plan_to_json(plan))
        else:
            stdout.write_text(render_plan(plan, width=width_of(stdout), color=has_color(stdout)))


def _check_no_output(output: str | None) -> None:
    if output is not None:
        msg = "--dry-run writes no model; leave out -o, or --dry-run"
        raise UsageError(msg)
