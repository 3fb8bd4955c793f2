"""A Dask cluster of two processes on this machine: the same bits as alone, whatever dies."""

import os
import pickle
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxport.core.errors import InputError, MachineError, MissingDependencyError, UsageError
from onnxport.quantize.calibration import Resources, calibrate, cluster
from onnxport.quantize.params import QuantizeParams
from tests.quantize.calibration.conftest import taps


@pytest.fixture(scope="module")
def local_cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as running:
        yield running


@pytest.fixture
def resources(local_cluster):
    return Resources(scheduler=local_cluster.scheduler_address)


def bits(observed):
    return {name: [pickle.dumps(each) for each in observers] for name, observers in observed.items()}


def test_a_cluster_gives_the_same_bits(model, files, watch, resources):
    expected = bits(calibrate(model, taps(), files, watch=watch))
    watch.seen.clear()
    assert bits(calibrate(model, taps(), files, watch=watch, resources=resources)) == expected
    assert watch.seen[-1] == (12, 12)
    assert len(watch.seen) > 2


def test_workers_need_no_file_of_the_users(model, files, watch, resources, local_cluster):
    """What a worker is handed names nothing that lies here."""
    portions = []
    portion = cluster.Cluster._portion

    def kept(self, shard):
        portions.append(portion(self, shard))
        return portions[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.Cluster, "_portion", kept)
        calibrate(model, taps(), files, watch=watch, resources=resources)
    for each in portions:
        assert str(files[0].path).encode() not in pickle.dumps([file.read for file in each.files.values()])


def test_what_a_killed_worker_left_undone_another_does(
    model, files, watch, resources, tmp_path, local_cluster
):
    expected = bits(calibrate(model, taps(), files, watch=watch))
    mark = tmp_path / "mark"
    portion = cluster.Cluster._portion

    def deadly(self, shard):
        found = portion(self, shard)
        kills = {
            number: replace(file, read=_Kills(file.read, mark, os.getpid())) if number == 5 else file
            for number, file in found.files.items()
        }
        return replace(found, files=kills)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.Cluster, "_portion", deadly)
        seen = calibrate(model, taps(), files, watch=watch, resources=resources)
    assert mark.exists()
    assert bits(seen) == expected


class _Kills:
    """Kills the first process that reads it, unless that is this one."""

    def __init__(self, read, mark, here):
        self._read, self._mark, self._here = read, mark, here

    def __call__(self):
        assert os.getpid() != self._here
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._read()


def test_a_shard_that_the_scheduler_forgot_is_sent_again(model, files, watch, resources):
    """A cancelled future is what a client has of a task whose data died with a worker."""
    expected = bits(calibrate(model, taps(), files, watch=watch))
    from distributed import Client

    cancelled = []
    submit = Client.submit

    def forgetful(self, *given, **options):
        future = submit(self, *given, **options)
        if len(cancelled) < 2:
            cancelled.append(future)
            future.cancel(force=True)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "submit", forgetful)
        seen = calibrate(model, taps(), files, watch=watch, resources=resources)
    assert len(cancelled) == 2
    assert bits(seen) == expected


def test_a_cluster_that_forgets_every_shard_is_given_up(model, files, watch, resources):
    from distributed import Client

    submit = Client.submit

    def forgetful(self, *given, **options):
        future = submit(self, *given, **options)
        future.cancel(force=True)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "submit", forgetful)
        with pytest.raises(MachineError, match="the workers of the cluster die"):
            calibrate(model, taps(), files, watch=watch, resources=resources)


def test_an_error_on_a_worker_names_the_sample(model, files, watch, resources):
    with np.load(files[7].path) as arrays:
        sample = dict(arrays)
    sample["x"][0, 0, 0, 0] = np.nan
    np.savez(files[7].path, **sample)
    with pytest.raises(InputError, match=r"'x' of the sample 7\.npz holds NaN"):
        calibrate(model, taps(), files, watch=watch, resources=resources)


def test_other_versions_on_the_workers_are_refused(model, files, watch, resources, monkeypatch):
    monkeypatch.setattr(cluster, "versions", lambda: {"onnxport": "0", "onnxruntime": "0", "numpy": "0"})
    with pytest.raises(
        UsageError, match=r"a worker of the cluster has onnxport .*, and here is 0: .*same versions"
    ):
        calibrate(model, taps(), files, watch=watch, resources=resources)


def test_no_scheduler_is_said(model, files, watch, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_CONNECTING", 1)
    with pytest.raises(
        MachineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1.*dask scheduler"
    ):
        calibrate(model, taps(), files, watch=watch, resources=Resources(scheduler="tcp://127.0.0.1:1"))


def test_without_dask_the_line_that_mends_it_is_said(model, files, watch, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=re.escape("pip install 'onnxport[distributed]'")):
        calibrate(model, taps(), files, watch=watch, resources=Resources(scheduler="tcp://127.0.0.1:1"))


def test_what_is_no_address_is_refused():
    with pytest.raises(UsageError, match="not the address of a Dask scheduler; write tcp://HOST:8786"):
        QuantizeParams(precision="int8", calib=Path("x"), scheduler="localhost")


def test_processes_here_and_there_exclude_each_other():
    with pytest.raises(UsageError, match="--jobs and --scheduler exclude each other"):
        QuantizeParams(precision="int8", calib=Path("x"), scheduler="tcp://a:1", jobs=2)
