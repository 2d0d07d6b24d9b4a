"""BatchNorm in two processes: all ranks have equal and correct statistics."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from support.jobs.batch_norm import Module, data
from support.processes import read_ranks, run_job
from support.training import make_loader


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the results of two processes with BatchNorm layers."""
    out = tmp_path_factory.mktemp("batch_norm")
    run_job("batch_norm", out)
    return read_ranks(out)


def test_unequal_parts_give_every_rank_one_pass_over_all_data(ranks: Any) -> None:
    first, second = (rank["plain"]["pure"] for rank in ranks)
    assert first == second
    everything = torch.cat([*data(0), *data(1)])
    expected = [everything.mean(0).tolist(), everything.var(0, unbiased=False).tolist()]
    torch.testing.assert_close(first["unequal"], expected, rtol=1e-12, atol=1e-12)


def test_a_rank_without_data_gets_the_statistics_of_the_others(ranks: Any) -> None:
    some = torch.cat(data(0))
    for rank in ranks:
        mean, _ = rank["plain"]["pure"]["empty on 1"]
        torch.testing.assert_close(mean, some.mean(0).tolist(), rtol=1e-12, atol=1e-12)
        assert rank["plain"]["pure"]["no data"] == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("of_average", [False, True])
def test_departure_precise_statistics_agree_bit_for_bit_and_are_those_of_all_data(
    ranks: Any, of_average: bool
) -> None:
    states = [rank["average"] if of_average else rank["precise"]["state"] for rank in ranks]
    if of_average:  # an integer is the model's own
        states = [{k: v for k, v in state.items() if "tracked" not in k} for state in states]
    assert states[0] == states[1]
    module = Module()
    values = {name: torch.tensor(value) for name, value in states[0].items()}
    module.load_state_dict(values, strict=False)
    with torch.no_grad():
        seen = module.net[0](torch.stack([x for x, _ in make_loader(3, 4).dataset]))
    layer = module.net[1]
    torch.testing.assert_close(layer.running_mean, seen.mean(0))
    torch.testing.assert_close(layer.running_var, seen.var(0, unbiased=False))


def test_parts_that_train_later_are_synchronized_or_refused(ranks: Any) -> None:
    (refused, is_as_at_start, weights), other = (rank["frozen"] for rank in ranks)
    assert 'write Trainer(strategy="ddp_find_unused_parameters_true")' in refused
    assert not is_as_at_start
    assert weights == other[2]


def test_sync_buffers_hook_makes_the_ranks_equal(ranks: Any) -> None:
    plain, synced = ([rank[name]["state"] for rank in ranks] for name in ("plain", "synced"))
    key = "net.1.running_mean"
    assert plain[0][key] != plain[1][key]
    assert synced[0] == synced[1]
    mean = (torch.tensor(plain[0][key]) + torch.tensor(plain[1][key])) / 2
    assert synced[0][key] == mean.tolist()


def test_departure_integer_buffers_take_rank_0s_value(ranks: Any) -> None:
    """mmcv raises: "result type Float can't be cast to the desired output type Long"."""
    assert [rank["plain"]["synced"] for rank in ranks] == [
        [[0.5, 0.5], [2.0, 2.0], 7, [True, False], [[1.5, 1.5]]]
    ] * 2
