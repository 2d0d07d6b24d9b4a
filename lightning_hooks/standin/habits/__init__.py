"""Names of old Python, numpy and torch that today's versions have dropped, for whole old scripts.

``python -m lightning_hooks.standin`` offers them; nothing is patched otherwise. The first use of
each is a line of log.
"""

from lightning_hooks.standin.habits.dropped import offer_modules as offer_modules
from lightning_hooks.standin.habits.dropped import offer_names as offer_names
from lightning_hooks.standin.habits.torch_load import offer_old_files as offer_old_files


def offer() -> None:
    """Offer all of them in this process; a second call changes nothing."""
    offer_names()
    offer_modules()
    offer_old_files()
