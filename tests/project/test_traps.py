"""Where Lightning and mmcv differ in ways that bite: each trap has its test, or cannot be reached.

A trap is a measured fact about Lightning 2.6 or mmcv 1.7 that a naive mapping falls into.
"""

from __future__ import annotations

import re

import pytest

from support.paths import TESTS

CASES, RESUME, DATA = "test_lightning_cases.py", "test_resume.py", "test_train_data.py"
FOREIGN, OWNER, ADAPTER = "test_runner.py", "test_ownership.py", "test_adapter.py"

TRAPS: dict[int, tuple[str, str, str]] = {
    1: ("global_step counts optimizer steps", CASES, "test_iter_counts_batches_not_optimizer"),
    2: ("total.ready is skewed after a skip", CASES, "test_module_that_skips_the_rest"),
    3: ("a batch begins without end, or ends without start", CASES, "test_loader_that_yields_none"),
    4: ("training_step returns None", CASES, "test_what_a_training_step_may_return"),
    5: ("outputs are detached and divided", CASES, "test_what_a_training_step_may_return"),
    6: ("num_training_batches is inf", CASES, "test_unsized_loader"),
    7: ("batch_idx restarts for each validation loader", CASES, "test_calls"),
    8: ("validation comes before on_train_epoch_end", "test_traces.py", "test_epoch_based"),
    9: ("validation in mid-epoch, by batch or clock", CASES, "test_validation_by_the_clock"),
    10: ("the sanity check fires validation events", "test_traces.py", "test_epoch_based"),
    11: ("max_steps ends in mid-epoch", CASES, "test_max_steps_in_mid_epoch_closes"),
    12: ("accumulation differs from mmcv's", OWNER, "test_clipping_and_accumulating_in_the_trai"),
    13: ("a fit without a batch has no start and end", CASES, "test_calls"),
    14: ("several fits go on counting", CASES, "test_two_fits_go_on_counting"),
    15: ("the learning rate finder runs steps without us", CASES, "test_learning_rate_finder"),
    16: ("validate, test and predict alone", CASES, "test_validate_test_and_predict_alone"),
    17: ("an exception skips every end", CASES, "test_exception"),
    18: ("an error in on_exception replaces the first", CASES, "test_our_exception_handling_never"),
    19: ("SIGTERM", CASES, "test_sigterm_leaves_the_module_as_it_was"),
    20: ("should_stop on one rank", "test_ddp.py", "test_should_stop_on_one_rank_stops_all"),
    21: ("most moments lose events on resume", RESUME, "test_from_an_epoch_end_with_max_steps_set"),
    22: ("counters are 0 when a state is loaded", RESUME, "test_from_an_epoch_end_everything_is"),
    23: ("buffers of before_run fail a strict load", RESUME, "test_buffers_that_an_old_hook_regi"),
    24: ("weights_only refuses numpy and paths", RESUME, "test_meta_and_its_hook_messages"),
    25: (
        "a weights-only file calls no callback",
        "test_checkpoint.py",
        "test_without_the_optimize",
    ),
    26: ("two stateful callbacks with one key", "test_ema.py", "test_two_equal_ones_coexist"),
    27: ("configure_callbacks", CASES, "test_hooks_from_configure_callbacks"),
    28: ("Lightning's order is not the priorities'", ADAPTER, "test_one_order_over_adapters"),
    29: ("pytorch_lightning has other classes", CASES, "test_a_trainer_of_the_other_lightning"),
    30: ("an entry point would run in every Trainer", "", "none is registered"),
    31: ("the CLI needs typed arguments", "test_lightning_cli.py", "test_hooks_from_yaml"),
    32: ("callback.log is forbidden in places", "", "hooks write to the log buffer, not with it"),
    33: ("a swap without its counterpart", RESUME, "test_weights_are_those_of_the_file_when"),
    34: ("Lightning saves no random state", RESUME, "test_from_an_epoch_end_everything_is"),
    35: (
        "the first iterator exists before the hooks",
        DATA,
        "test_a_replaced_loader_is_iterated_f",
    ),
    36: ("each callback maps its own events", "test_traces.py", "test_three_callbacks_share_one"),
    37: ("completed is counted after the batch's end", "test_traces.py", "test_three_callbacks_sh"),
    38: ("mmcv calls train() and Lightning does not", FOREIGN, "test_train_step_module_is_put_in"),
    39: (
        "self.log raises in a hook's forward",
        FOREIGN,
        "test_departure_a_forward_by_a_hook_leaves_no",
    ),
    40: ("mmcv's loader strips only module.", FOREIGN, "test_load_checkpoint_with_any_prefix"),
    41: ("no optimizer, no resume", "test_checkpoint.py", "test_without_the_optimizer_it_is_a"),
    42: ("saved when validation starts", RESUME, "test_from_the_validation_that_ended_an_epoch"),
    43: ("weights-only calls only the module", "test_ema.py", "test_departure_a_checkpoint_has"),
    44: ("found_inf and fused SGD", "", "no step is skipped by us: a bad loss raises"),
    45: ("is_module_wrapper wants a DataParallel", FOREIGN, "test_runner_model_is_a_wrapper"),
    46: ("a deepcopy keeps a patched step", FOREIGN, "test_a_deepcopy_of_the_model_in_training"),
    47: ("weights differ between machines", "test_optimizer.py", "test_equal_to_mmcv"),
    48: ("mmcv's val-only workflow never ends", "", "Lightning's loop is the only one"),
    49: ("a lerp is not mul and add", "test_ema.py", "test_departure_a_lerp_is_closer_to_the"),
    50: ("validation clears the gradients", OWNER, "test_accumulated_gradients_survive_valid"),
    51: ("global_step reads the module's flag", OWNER, "test_weights_are_those_of_a_plain_loop"),
}


def test_none_is_left_out() -> None:
    assert list(TRAPS) == list(range(1, 52))


@pytest.mark.parametrize("number", [n for n, trap in TRAPS.items() if trap[1]])
def test_each_has_its_test(number: int) -> None:
    _, file, name = TRAPS[number]
    assert re.search(rf"^def {name}", next(TESTS.rglob(file)).read_text(), re.MULTILINE), (
        file,
        name,
    )
