"""`pipeline …`: hands over to the Spark jobs, which nobody else has to load or install."""

from importlib import import_module

import typer

from perennial.cli.exits import die

EXTRA = "pip install 'perennial[spark]'   (and Java 17 or 21)"


def register(app: typer.Typer) -> None:
    app.command(
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
            "help_option_names": [],
        },
        add_help_option=False,
    )(pipeline)


def pipeline(context: typer.Context) -> None:
    """Load, archive, compact and analyse streams with Spark. See `perennial pipeline --help`."""
    try:
        # By name: a checkout without the jobs, or a machine without Spark, is no mistake.
        jobs: typer.Typer = import_module("perennial.spark.commands").app
    except ModuleNotFoundError as error:
        die(f"the pipeline is not installed: there is no module {error.name}", hint=EXTRA)
    jobs(args=context.args or ["--help"], prog_name="perennial pipeline")
