"""The `onnxport` command and the table of its subcommands, each imported on use.

`onnxport --help` and the completion of shells load nothing but this module and click.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from onnxport.cli import signals
from onnxport.cli.help_groups import Command
from onnxport.core.version import __version__

# Key of a context's meta with the words of the whole command line.
ARGUMENTS = "onnxport.arguments"
# Command to its line in `onnxport --help` and its own --help, by groups; its module has the same name.
GROUPS = {
    "Make an artefact": {
        "convert": "Convert an ONNX model to TFLite, Core ML or ONNX Runtime format and prove the result.",
        "quantize": "Make an ONNX model smaller and faster in lower precision, and measure the loss of accuracy.",
        "optimize": "Convert an ONNX model to another opset, simplify it, and prove that it computes the same.",
        "extract": "Cut a part out of an ONNX model, and prove that it computes what the model computes there.",
        "export": "Export a model of PyTorch, TensorFlow, scikit-learn or another framework to ONNX, and prove it.",
    },
    "Prove it, and find what is wrong": {
        "validate": "Prove that a model file computes what another one computes.",
        "debug": "Find the node at which a model file begins to differ from the ONNX model.",
        "diff": "Show what changed between two ONNX models, and what that does to their outputs.",
        "samples": "Write the inputs that a validation generates, as files to look at, edit and feed.",
        "verify": "Show what a model file was made from, and what changed since.",
    },
    "Look at it, and measure it": {
        "inspect": "Show the content of a model file and what is unusual about it.",
        "bench": "Measure speed, size and memory use of model files on this machine.",
        "view": "Open model files in Netron beside each other, or write them for Model Explorer, with our findings.",
        "profile": "Show the time of each node of a model, and of the ONNX node that it came from.",
    },
    "Pipelines": {
        "init": "Write a first pipeline.yaml for a model, and a CI workflow that runs it.",
        "run": "Run a pipeline: make the new or changed artefacts of a pipeline.yaml.",
        "plan": "Show what a run of a pipeline would make and why, and what is cached. Nothing runs.",
        "cache": "List, prune or clear the cache of a pipeline.",
        "schema": "Print the JSON Schema of pipeline.yaml, for editors that complete its keys.",
    },
    "This machine": {
        "doctor": "Show which targets work on this machine, and what the others need.",
    },
}
COMMANDS = {name: line for commands in GROUPS.values() for name, line in commands.items()}


class Commands(click.Group):
    """A group that imports a command when it is called, and shows all errors in the same form."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            if args[0] == "help":  # git and pip have it
                near = " ".join([*(each for each in args[1:2] if each in COMMANDS), "--help"])
                ctx.fail(f"No such command 'help'; did you mean {near!r}?")
            import difflib

            for near in difflib.get_close_matches(args[0], COMMANDS, n=1):
                ctx.fail(f"No such command {args[0]!r}; did you mean {near!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"onnxport.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def main(
        self, args: Sequence[str] | None = None, *_: Any, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line; end the process with its exit code, or return the code if not standalone."""
        arguments = (sys.argv[1:] if args is None else list(args)) or ["--help"]
        code = self._exit_code(arguments, **extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _exit_code(self, arguments: list[str], prog_name: str | None = None, **extra: Any) -> int:
        name = prog_name or "onnxport"
        self._main_shell_completion(extra, name)
        try:
            with self.make_context(name, list(arguments), **extra) as context:
                context.meta[ARGUMENTS] = tuple(arguments)
                return self.invoke(context) or 0
        except click.exceptions.Exit as leaving:
            return leaving.exit_code
        except BaseException as error:
            from onnxport.cli.error_output import show

            # Read from the words themselves: the error about a refused command line has the same form.
            verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
            return show(signals.error_to_show(error), json="--json" in arguments, verbose=verbose)


def _install_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        from onnxport.cli.completion import install

        click.echo(install(shell))
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onnxport", message="%(prog)s %(version)s")
@click.option(
    "--install-completion",
    metavar="[bash|zsh|fish]",
    is_flag=False,
    flag_value="auto",
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Have a shell complete commands and options, by a line in its start file. [default: $SHELL]",
)
def cli() -> None:
    """ONNX models to TFLite, Core ML and ONNX Runtime format, each artefact proven against ONNX Runtime.

    \b
    Example:
      onnxport convert model.onnx --to tflite
    """


def subcommand(name: str, *examples: str) -> Callable[[Callable[..., int]], click.Command]:
    """Make a function the subcommand `name`; it returns its exit code."""
    shown = "\n".join(
        ["\b", "Example:" if len(examples) == 1 else "Examples:", *(f"  {e}" for e in examples)]
    )
    return click.command(name, Command, help=COMMANDS[name], epilog=shown)
