"""Each sentence of SECURITY.md on checkpoints, their lists and spools is a test."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT, TESTS

HELD_BY = {
    "They are read with": "storage/test_payloads.py::test_nothing_runs",
    "A file that contains anything": "storage/test_payloads.py::test_nothing_runs",
    "A file that is not as it was written is refused": (
        "storage/test_bad_input_storage.py::test_flipped_bits_in_a_checkpoint_that_no_list_knows"
    ),
    "A file of torch's old layout": (
        "storage/test_odd_files.py::test_a_file_without_checksums_is_unverified"
    ),
    "A text, an empty file, a list or a folder": (
        "storage/test_odd_files.py::test_a_file_that_is_no_checkpoint_is_refused_by_what_it_is"
    ),
    "Checksums detect damage": "storage/test_payloads.py::test_nothing_runs",
    "Of a tracker's run": (
        "loggers/delivery/test_strangers.py"
        "::test_a_stranger_s_checkpoint_names_no_folder_and_no_server"
    ),
    "An item in it that has not": (
        "loggers/delivery/test_strangers.py"
        "::test_an_entry_of_a_checkpoint_that_has_not_our_form_is_refused"
    ),
    "A name in it that leads out": (
        "storage/test_hostile_lists.py::test_no_name_in_a_list_deletes_what_is_not_ours"
    ),
    "An entry that is no entry": (
        "storage/test_hostile_lists.py::test_a_bad_entry_costs_itself_alone"
    ),
    "A checkpoint is deleted only if": (
        "storage/test_hostile_lists.py::test_what_is_ours_goes_and_a_link_to_it_stays"
    ),
    "Folders on the way": (
        "storage/test_hostile_lists.py::test_a_link_that_is_planted_meanwhile_is_not_followed"
    ),
    "In a remote directory": (
        "storage/test_hostile_lists.py::test_in_a_remote_directory_the_size_decides"
    ),
    "Half-written files": (
        "storage/test_manifest.py::test_what_a_kill_in_the_first_save_left_goes_with_the_next_run"
    ),
    "A damaged line, or an": "loggers/delivery/test_hostile_spools.py::test_any_damage_is_survived",
    "A checkpoint that a spool": (
        "loggers/trackers/test_checkpoints.py::test_a_hostile_line_names_no_other_file"
    ),
    "`lightning-hooks replay": (
        "loggers/delivery/test_strangers.py::test_a_spool_is_sent_where_the_command_says"
    ),
    "A spool holds values": "loggers/delivery/test_strangers.py::test_a_spool_names_no_place",
    "The command that a hook": "loggers/delivery/test_strangers.py::test_no_secret_is_printed",
    "Only the user can": (
        "loggers/delivery/test_hostile_spools.py::test_only_the_user_can_read_a_spool"
    ),
    "Spools of remote work dirs": (
        "loggers/delivery/test_hostile_spools.py::test_the_shared_folder_belongs_to_the_user"
    ),
}
"""The beginning of each sentence, and the test."""

OTHERS_HELD_BY = {
    "Whatever they contain": "storage/test_bad_input_storage.py"
    "::test_flipped_bits_in_a_checkpoint_that_no_list_knows",
    "- **config files that end in `.py`**": "config/test_bad_input_config.py"
    "::test_the_error_of_a_config_that_is_code_keeps_its_type",
    "the modules that any config lists": (
        "config/test_full_config.py::test_custom_imports_register_old_hooks"
    ),
    "YAML and JSON files": "config/test_bad_input_config.py::test_a_config_in_yaml_is_data",
    "`python -m lightning_hooks.standin` also has": "standin/test_habits.py"
    "::test_an_old_script_finds_what_was_dropped_and_a_line_names_each",
    "- **a project that `lightning-hooks check` judges**": (
        "cli/test_check_project.py::test_a_script_or_config_judges_what_it_loads"
    ),
    "- **paths that you give": "loggers/test_text.py::test_text_files_are_copied_after_the_run",
    "- **files read by Python's pickle**": "storage/test_payloads.py::test_the_payload_would_fire",
    "With the hook they are inspected first": "storage/test_payloads.py::test_nothing_runs",
    "They create files inside": "storage/test_bad_input_paths.py"
    "::test_metrics_of_any_name_are_logged_in_the_work_directory",
    "a path outside of it is refused": "storage/test_bad_input_paths.py"
    "::test_departure_a_template_that_leads_elsewhere_is_refused",
}
"""The same for words of the rest of the page: what is trusted, and names."""


def sentences(bullet: str) -> list[str]:
    """Return the sentences of a bullet of the page, behind its title."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    (text,) = re.findall(
        rf"^- \*\*{re.escape(bullet)}(.*?)(?=^- |^#)", page, re.DOTALL | re.MULTILINE
    )
    return re.split(r"(?<=[.]) (?=[A-Z`])", " ".join(text.split()))


def test_each_sentence_has_its_test() -> None:
    bullets = "Checkpoint files.**", "`checkpoints.json`**", "Spools**"
    found = [one for bullet in bullets for one in sentences(bullet)]
    found = [one for one in found if not one.startswith((", the list of", "(`work_dir/spool"))]
    assert len(found) == len(HELD_BY)
    for sentence, (begin, test) in zip(found, HELD_BY.items(), strict=True):
        assert sentence.startswith(begin)
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize(("words", "test"), OTHERS_HELD_BY.items())
def test_the_rest_of_the_page_too(words: str, test: str) -> None:
    assert words in " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test
