"""A command of commands that names the nearest one when a name is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qtool.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence


class NearestGroup(click.Group):
    """A group whose commands are listed in the order they were added, not in that of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of work."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not name.startswith("-"):
            ctx.fail(f"there is no command {_full_name(ctx, name)!r}{nearest(name, names)}")
        return super().resolve_command(ctx, args)


def _full_name(context: click.Context, name: str) -> str:
    above: Sequence[str] = context.command_path.split()[1:]  # without the program's own name
    return " ".join([*above, name])
