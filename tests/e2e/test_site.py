"""The running product answers a browser, and what the browser may not see is watched."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.e2e.conftest import Site


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_the_product_says_that_it_lives(site: Site, page: Page) -> None:
    answer = page.goto("/healthz")
    assert answer is not None
    assert answer.status == 200
    assert site.set_up_link is not None
    assert site.set_up_link.startswith(site.url)
