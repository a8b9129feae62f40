"""A search that solves in the tests' own process, which is quicker than starting others for small steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import meshwright as mw
from meshwright.planner.search.pool import Here
from meshwright.planner.search.result import SearchResult


class _Held(Here):
    """One that ends with a ``with``."""

    def __init__(self) -> None:
        super().__init__(lambda: False)

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def here() -> Iterator[None]:
    """All searches solve in this process, those of commands too."""
    with (
        mock.patch("meshwright.backends.jax.search.Processes", _Held),
        mock.patch("meshwright.backends.jax.search_settings.Processes", _Held),
    ):
        yield


def search(*args: Any, **options: Any) -> SearchResult:
    """``mw.search``'s answer."""
    with here():
        return mw.search(*args, **options)


def search_plan(*args: Any, **options: Any) -> SearchResult:
    """``mw.search_plan``'s answer."""
    with here():
        return mw.search_plan(*args, **options)
