"""The forms of a bench, a profile and a deployment, as far as the subject does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from fixtures import models
from onnxport.core.errors import UsageError
from onnxport.reports import FORMATS, FORMS, form_module, saving
from tests.reports.bench import handmade as bench
from tests.reports.deployment import handmade as deployment
from tests.reports.profile import handmade as profile

SUBJECTS = {"bench": bench.REPORTS, "profile": profile.REPORTS, "deployment": deployment.REPORTS}


def reports(form: str) -> list[Any]:
    """Every report made by hand of each subject with this form."""
    return [
        pytest.param(subject, make, id=f"{subject}-{name}")
        for subject, made in SUBJECTS.items()
        if form in FORMS[subject]
        for name, make in made.items()
    ]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_form_is_written_and_others_are_refused(subject: str, tmp_path: Path) -> None:
    known = [suffix for suffix, form in FORMATS.items() if form in FORMS[subject]]
    paths = [tmp_path / f"report{suffix}" for suffix in known]
    with saving(paths, "bench", subject) as save:
        save(SUBJECTS[subject]["whole"]())
    assert all(path.stat().st_size > 1000 for path in paths)
    for suffix in FORMATS.keys() - set(known) | {".txt"}:
        with pytest.raises(UsageError) as caught, saving([tmp_path / f"report{suffix}"], "bench", subject):
            pytest.fail("the work began")
        assert caught.value.fix == f"known suffixes are {', '.join(known)}"


@pytest.mark.real
@pytest.mark.parametrize(("subject", "make"), reports("junit"))
def test_junit_keeps_jenkins_schema(subject: str, make: Any) -> None:
    document = etree.fromstring(form_module(subject, "junit").view(make()).encode())
    etree.XMLSchema(etree.parse(models.schema("junit-10.xsd"))).assertValid(document)


@pytest.mark.parametrize(("subject", "make"), reports("markdown"))
def test_markdown_has_no_control_characters(subject: str, make: Any) -> None:
    assert "\x1b" not in form_module(subject, "markdown").view(make())
