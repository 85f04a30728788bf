"""Words that no database can keep are refused in one sentence, wherever they come in: by a shell or by an API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid
from kbslurm.store.postgres import PostgresStore

UNFIT = ["a\0b", "a\udcffb"]
WAYS: list[Callable[[PostgresStore, str], object]] = [
    lambda store, word: store.people.find(word),
    lambda store, word: store.people.ban(PersonId(1), word),
    lambda store, word: store.boards.find(word),
    lambda store, word: store.tokens.issue(PersonId(1), device=word),
    lambda store, word: store.intake.admission(PersonId(1), word),
]


@pytest.mark.parametrize("word", UNFIT, ids=["nul", "surrogate"])
def test_an_unfit_word_is_refused_and_the_store_works_on(database_url: str, word: str) -> None:
    with PostgresStore(database_url) as store:
        store.people.add("ada")
        for way in WAYS:
            with pytest.raises(Invalid, match="can't be stored"):
                way(store, word)
        known = store.people.find("ada")
        assert known is not None and known.ban_reason == ""
