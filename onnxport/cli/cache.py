"""`onnxport cache`."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options
from onnxport.cli.run import SIZE
from onnxport.core.missing_paths import missing_path

if TYPE_CHECKING:
    from onnxport.pipelines.cache import Cache
    from onnxport.pipelines.cache.store import EntrySummary


@subcommand("cache", "onnxport cache list", "onnxport cache prune --size 2GB", "onnxport cache clear")
@click.argument("action", type=click.Choice(("list", "prune", "clear")))
@click.argument("pipeline", type=PATH, default=Path("pipeline.yaml"))
@click.option(
    "--size",
    type=SIZE,
    metavar="SIZE",
    help="prune: size to keep, of the most recently used. [default: $ONNXPORT_CACHE_SIZE, else 10GB]",
)
@click.option(
    "--calibrations",
    is_flag=True,
    help="clear: also drop the calibrations of quantize, in $ONNXPORT_CACHE or the user's cache folder.",
)
@output_options
def command(action: str, pipeline: Path, size: int | None, calibrations: bool, output: Output) -> int:
    from onnxport.pipelines.cache import Cache, folder_beside, timings_beside
    from onnxport.pipelines.cache.store import size_limit
    from onnxport.quantize.calibration_store import cache_folder

    for given, name, of in ((size is not None, "--size", "prune"), (calibrations, "--calibrations", "clear")):
        if given and action != of:
            raise click.UsageError(f"{name} is for onnxport cache {of}", click.get_current_context())
    if str(pipeline) != "pipeline.yaml" and not pipeline.exists():
        raise missing_path(pipeline, fix="give the pipeline.yaml of the cache")
    place = pipeline / "pipeline.yaml" if pipeline.is_dir() else pipeline
    folder = folder_beside(place)
    dropped: list[EntrySummary] = []
    with Cache(folder) as cache:
        if action != "list" and folder.is_dir():
            cache.check_writable()
            limit = size_limit() if size is None else size
            dropped = cache.clear() if action == "clear" else cache.prune(limit)
        if action == "clear":
            shutil.rmtree(timings_beside(place), ignore_errors=True)
            if calibrations:
                shutil.rmtree(cache_folder(), ignore_errors=True)
        document = _document(action, cache, dropped)
    output.result(lambda: json.dumps(document, indent=2), lambda: _text(document))
    return 0


def _document(action: str, cache: Cache, dropped: list[EntrySummary]) -> dict[str, Any]:
    from onnxport.pipelines.cache.store import size_limit
    from onnxport.quantize.calibration_store import cache_folder

    calibrations = [file for file in cache_folder().glob("*") if file.is_file()]
    return {
        "command": f"cache {action}",
        "folder": str(cache.folder),
        "limit": size_limit(),
        "products": [_row(each) for each in cache.kept()],
        "dropped": [_row(each) for each in dropped],
        "calibrations": {
            "folder": str(cache_folder()),
            "count": len(calibrations),
            "size": sum(file.stat().st_size for file in calibrations),
        },
        "exit_code": 0,
    }


def _row(kept: EntrySummary) -> dict[str, Any]:
    return {
        "key": kept.key,
        "node": kept.note.node if kept.note else None,
        "file": kept.note.main if kept.note else None,
        "size": kept.size,
        "used": round(kept.used, 3),
        "is_damaged": kept.note is None,
    }


def _text(document: dict[str, Any]) -> str:
    from onnxport.core.errors import printable
    from onnxport.reports.phrases import count, human_size

    def total(rows: list[dict[str, Any]]) -> str:
        return f"{count(len(rows), 'product')}, {human_size(sum(row['size'] for row in rows))}"

    def age(used: float) -> str:
        days = int(max(0.0, time.time() - used) // 86400)
        return "used today" if not days else f"used {days} d ago"

    kept, dropped, held = document["products"], document["dropped"], document["calibrations"]
    if document["command"] == "cache list":
        names = [printable(row["node"] or "damaged") for row in kept]
        width = max(map(len, names), default=0)
        lines = [
            f"{name:<{width}}   {human_size(row['size']):>8}   {age(row['used'])}   {row['key'][:12]}"
            for name, row in sorted(zip(names, kept, strict=True), key=lambda each: -each[1]["used"])
        ]
    else:
        lines = [f"dropped {total(dropped)}"]
    limit = human_size(document["limit"])
    lines.append(printable(f"{total(kept)} of at most {limit} in {document['folder']}"))
    calibrations = f"{count(held['count'], 'calibration')}, {human_size(held['size'])}"
    lines.append(printable(f"{calibrations} in {held['folder']}"))
    return "\n".join(lines)
