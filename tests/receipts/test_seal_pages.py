"""Sealed receipts on the pages: where a receipt is sealed, its proof as a file, the code on paper."""

import pytest
from django.test import Client

from kwit.models import Action
from receipts.models import Checkpoint
from receipts.sealing.log import make_proof, read_entries
from receipts.sealing.notes import SigningKey
from receipts.sealing.seal import seal_receipts
from tests.receipts import second_verifier as second
from tests.receipts.kept import VIEW, make_person, make_receipt
from tests.receipts.pages import LIST
from tests.receipts.test_exports import sent

pytestmark = pytest.mark.django_db(transaction=True)
CHG_1 = f"{LIST}CHG-1/"


@pytest.fixture
def key(settings: object) -> SigningKey:
    made = SigningKey.generate("example.com/receipts")
    settings.RECEIPTS = {"LOG_KEYS": made.export()}  # type: ignore[attr-defined]
    return made


def facts(client: Client) -> dict[str, str]:
    """Return the head of the receipt's page."""
    section, *_ = client.get(f"{CHG_1}change/").context["detail"].sections
    return {str(fact.name): str(fact.cell.html) for fact in section.facts}


def test_the_page_says_in_which_checkpoint_a_receipt_was_sealed_first(root: Client, key: SigningKey) -> None:
    make_receipt("CHG-1", ids=[1])
    assert "not yet sealed" in facts(root)["sealed"]
    seal_receipts()
    make_receipt("CHG-2", ids=[2])
    seal_receipts(is_full=True)

    assert Checkpoint.objects.count() == 2
    assert "in checkpoint 1 of 20" in facts(root)["sealed"]
    assert "as leaf 0" in facts(root)["sealed"]


def test_the_proof_is_a_file_and_the_download_is_recorded(root: Client, key: SigningKey) -> None:
    make_receipt("CHG-1", ids=[1])
    early = root.get(f"{CHG_1}export/proof/")
    seal_receipts()

    given = sent(root, f"{CHG_1}export/proof/").decode()

    assert early.status_code == 302
    assert given == make_proof("CHG-1", "default")
    assert second.is_sealed(given, str(key.public))
    assert Action.objects.filter(name="export", note="tlog-proof", outcome="done").count() == 1


def test_without_the_right_to_export_there_is_no_proof(client: Client, key: SigningKey) -> None:
    make_receipt("CHG-1", ids=[1])
    seal_receipts()
    client.force_login(make_person("eve", *VIEW, tenants=["acme"]))

    assert client.get(f"{CHG_1}export/proof/").status_code == 403


def test_a_receipt_of_another_tenant_has_no_proof(client: Client, key: SigningKey) -> None:
    make_receipt("CHG-1", ids=[1])
    seal_receipts()
    client.force_login(make_person("zed", *VIEW, "receipts.export", tenants=["zeta"]))

    assert client.get(f"{CHG_1}export/proof/").status_code == 404


def test_the_print_has_the_hash_of_the_leaf_as_text_and_as_a_code(root: Client, key: SigningKey) -> None:
    make_receipt("CHG-1", ids=[1])
    hash_text = read_entries(["CHG-1"], "default")["CHG-1"].leaf_hash.hex()

    before = root.get(f"{CHG_1}export/print/").content.decode()
    seal_receipts()
    page = root.get(f"{CHG_1}export/print/").content.decode()

    assert f"<code>{hash_text}</code>" in before
    assert f"<code>{hash_text}</code>" in page
    assert page.count("<svg") == 1
    assert "style=" not in page  # the strict policy forbids it
    assert "not yet sealed" in before
    assert "in checkpoint 1 of" in page
