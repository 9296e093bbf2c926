"""Sealing: what a run does, that runs never fork or skip, and what is published."""

import http.server
import json
import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.utils import timezone

from kwit import jobs
from receipts import verify
from receipts.checks import DOCTOR
from receipts.dialects import dialect_of
from receipts.models import Checkpoint, Cosignature, Leaf, Publication
from receipts.sealing import sealer, watch
from receipts.sealing.audit import audit_log
from receipts.sealing.keys import load_keys
from receipts.sealing.log import Inconsistent, make_proof, read_entries
from receipts.sealing.notes import Head, Note, PublicKey, SigningKey
from receipts.sealing.seal import seal_receipts
from tests.crashing import crash_everywhere
from tests.factories import NOW, make_line
from tests.racing import background, open_transaction, race
from tests.receipts import second_verifier as second
from tests.receipts.kept import make_receipt
from tests.receipts.plain import cancel, target
from tests.receipts.test_broken import as_owner
from tests.receipts.test_field_changes import apply as apply_price
from tests.receipts.test_field_changes import make_price
from tests.receipts.test_field_changes import target as price_target
from tests.receipts.test_log_formats import cosigned_by_a_witness

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key(settings):
    """Sign with a key of this test."""
    made = SigningKey.generate("example.com/receipts")
    settings.RECEIPTS = {"LOG_KEYS": made.export()}
    return made


def make_receipts(number, *, start=0):
    """Commit so many receipts of one row each, now."""
    for place in range(start, start + number):
        make_receipt(f"CHG-{place:04}", ids=[place + 1], at=timezone.now() + timedelta(milliseconds=place))


def positions():
    return list(Leaf.objects.order_by("position").values_list("position", "change_id"))


def is_whole():
    """Whether the log is what the tables say, with every leaf at its place."""
    found = [place for place, _ in positions()]
    return found == list(range(len(found))) and not audit_log("default", keys=load_keys()).findings


def printed(*arguments):
    """Return the exit code and the object that a command prints."""
    out, code = StringIO(), 0
    try:
        call_command(*arguments, "--json", stdout=out, stderr=StringIO())
    except CommandError as error:
        code = error.returncode
    return code, json.loads(out.getvalue())


# What a run does.


def test_committed_receipts_are_sealed_once_in_the_order_of_their_time(key):
    make_receipt("B", ids=[1], at=NOW)
    make_receipt("A", ids=[2], at=NOW)
    make_receipt("C", ids=[3], at=NOW - timedelta(days=400))

    first, second_run = seal_receipts(), seal_receipts()

    assert (first.sealed, first.size, first.checkpoint.number) == (3, 3, 1)
    assert (second_run.sealed, second_run.size, second_run.checkpoint) == (0, 3, None)
    assert positions() == [(0, "C"), (1, "A"), (2, "B")]
    assert is_whole()


def test_the_log_grows_by_what_is_committed_since(key):
    for number in range(1, 20):
        make_receipts(1, start=number)
        assert seal_receipts().checkpoint.size == number
    assert is_whole()
    for checkpoint in Checkpoint.objects.all():
        assert second.has_signed(checkpoint.note, str(key.public))


def test_every_receipt_of_a_log_has_a_proof_that_both_verifiers_accept(key, tmp_path):
    cancel(target(make_line()), target(make_line()), change_id="Żółw/1", actor="ann", reason="sold out\n")
    make_receipts(12)
    seal_receipts()
    (tmp_path / "key").write_text(str(key.public))

    for _, change_id in positions():
        proof = make_proof(change_id, "default")
        assert second.is_sealed(proof, str(key.public))
        (tmp_path / "proof").write_text(proof, encoding="utf-8")
        assert verify.main([str(tmp_path / "proof"), "--key", str(tmp_path / "key")]) == 0


def test_a_proof_takes_as_many_queries_whatever_the_size(key, django_assert_max_num_queries):
    make_receipts(40)
    seal_receipts()

    with django_assert_max_num_queries(8):
        assert make_proof("CHG-0017", "default")


def test_without_a_key_the_tree_is_built_and_says_unsigned(settings):
    settings.RECEIPTS = {}
    make_receipts(2)

    out = StringIO()
    call_command("receipts_seal", stdout=out)

    assert "(unsigned)" in out.getvalue()
    assert Note.parse(Checkpoint.objects.get().note).signatures == ()
    assert audit_log("default", keys=load_keys()).unsigned == 1
    assert make_proof("CHG-0000", "default")


def test_after_a_rotation_the_next_checkpoint_is_signed_by_both_keys(settings):
    old, new = SigningKey.generate("example.com/receipts"), SigningKey.generate("example.com/receipts")
    settings.RECEIPTS = {"LOG_KEYS": old.export()}
    make_receipts(1)
    seal_receipts()

    settings.RECEIPTS = {"LOG_KEYS": f"{old.export()} {new.export()}"}
    both = seal_receipts().checkpoint  # without a new receipt: a new key signs at once
    settings.RECEIPTS = {"LOG_KEYS": f"{new.export()} {old.public}"}
    make_receipts(1, start=1)
    alone = seal_receipts().checkpoint

    assert [second.has_signed(both.note, str(one.public)) for one in (old, new)] == [True, True]
    assert [second.has_signed(alone.note, str(one.public)) for one in (old, new)] == [False, True]
    assert audit_log("default", keys=load_keys()).findings == []


def test_a_full_scan_once_a_day_finds_what_committed_late_and_makes_a_checkpoint(key):
    make_receipts(1)
    assert seal_receipts().checkpoint.is_full
    late = make_receipt("LATE", ids=[900], at=NOW - timedelta(days=3))

    assert seal_receipts().sealed == 0  # older than what an ordinary run looks at
    as_owner(("UPDATE receipts_checkpoint SET created_at = %s", [NOW]))
    report = seal_receipts()

    assert (report.sealed, report.checkpoint.is_full) == (1, True)
    assert positions()[-1] == (1, late.pk)
    as_owner(("UPDATE receipts_checkpoint SET created_at = %s", [NOW]))
    assert (seal_receipts().sealed, Checkpoint.objects.count()) == (0, 3)


def test_a_batch_is_bounded_by_its_targets(key, monkeypatch):
    monkeypatch.setattr(sealer, "BATCH_TARGETS", 5)
    monkeypatch.setattr(sealer, "SCAN_ROWS", 4)
    for number in range(6):
        make_receipt(f"CHG-{number}", ids=range(10 * number + 1, 10 * number + 4), at=NOW)
    steps = []

    assert seal_receipts(progress=steps.append).sealed == 6
    assert steps == [1] * 6
    assert is_whole()


def test_asked_to_stop_it_ends_after_the_batch_and_the_next_run_goes_on(key, monkeypatch):
    monkeypatch.setattr(sealer, "BATCH_RECEIPTS", 2)
    make_receipts(6)
    asked = iter([False, True, True, True])

    stopped = seal_receipts(is_stopping=lambda: next(asked, True))

    assert (stopped.sealed, stopped.checkpoint.size, stopped.checkpoint.is_full) == (2, 2, False)
    assert seal_receipts().size == 6
    assert is_whole()


def test_what_plain_sql_has_written_as_targets_is_sealed_all_the_same(key):
    make_receipt("ODD", targets={"a": [1.5, None, "\u007f"]}, ids=[1])

    assert seal_receipts().sealed == 1
    assert is_whole()


# The database keeps the sequence.


def leaf(position, previous, change_id="X"):
    return Leaf(position=position, previous_id=previous, change_id=change_id, digest="0" * 64, hashes="0" * 64)


@pytest.mark.parametrize(("position", "previous"), [(5, 4), (5, 2), (4, None), (-1, None), (3, 2)])
def test_the_constraints_refuse_a_gap_a_second_beginning_and_a_position_twice(key, position, previous):
    make_receipts(4)
    seal_receipts()

    with pytest.raises(IntegrityError), transaction.atomic():
        Leaf.objects.bulk_create([leaf(position, previous)])  # a deferred foreign key is checked by the commit

    assert is_whole()


@pytest.mark.parametrize("table", ["receipts_leaf", "receipts_checkpoint"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET {} = 'x'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_delete_a_leaf_or_a_checkpoint(key, table, verb):
    make_receipts(1)
    seal_receipts()
    column = "digest" if table == "receipts_leaf" else "note"

    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        connection.cursor().execute(verb.format(table, column))


# Races and crashes.


def test_sealers_that_run_at_once_seal_each_receipt_once(key):
    make_receipts(60)

    reports = race(4, lambda number: seal_receipts())

    assert not [one for one in reports if isinstance(one, Exception)], reports
    assert len(positions()) == 60
    assert seal_receipts().size == 60
    assert is_whole()


def test_without_the_lock_the_constraints_decide(key, monkeypatch):
    """The lock saves work only."""
    monkeypatch.setattr("receipts.dialects.base.ReceiptsDialect.try_seal_lock", lambda *given: True)
    monkeypatch.setattr(type(dialect_of(connection)), "try_seal_lock", lambda *given: True)
    monkeypatch.setattr(sealer, "BATCH_RECEIPTS", 3)
    make_receipts(60)

    race(4, lambda number: seal_receipts())
    seal_receipts()

    assert len(positions()) == 60
    assert is_whole()


def test_a_sealer_that_holds_the_lock_is_told_of_and_not_waited_for(key):
    if connection.vendor == "sqlite":
        pytest.skip("there, a transaction that writes is the only one")
    make_receipts(2)

    with open_transaction(lambda: dialect_of(connection).try_seal_lock(connection)):
        report = seal_receipts()

    assert (report.is_busy, report.sealed, report.checkpoint) == (True, 0, None)
    assert seal_receipts().sealed == 2


def test_sealing_beside_appliers_skips_nothing(key):
    lines = [make_line() for _ in range(12)]

    def act(number):
        if number == 0:
            for _ in range(6):
                seal_receipts()
            return
        for place in range(number - 1, 12, 3):
            cancel(target(lines[place]), change_id=f"CHG-{place}")

    outcomes = race(4, act)
    seal_receipts()

    assert outcomes == [None] * 4
    assert len(positions()) == 12
    assert is_whole()


def test_a_receipt_that_commits_during_a_run_is_sealed_by_the_next(key):
    if connection.vendor == "sqlite":
        pytest.skip("there, a transaction that writes is the only one")
    line = make_line()
    make_receipts(3)

    with open_transaction(lambda: cancel(target(line), change_id="LATE")):
        assert background(seal_receipts).end().sealed == 3
    assert seal_receipts().sealed == 1
    assert positions()[-1] == (3, "LATE")
    assert is_whole()


def seal_in_child():
    """What a child process does: seal in batches of two."""
    sealer.BATCH_RECEIPTS = 2
    return seal_receipts().sealed


def test_a_sealer_killed_at_any_write_leaves_what_the_next_run_completes(settings):
    """Keys come from the environment of no child: unsigned."""
    settings.RECEIPTS = {}
    killed = 0
    for start, ended in enumerate(crash_everywhere("tests.receipts.test_sealing:seal_in_child")):
        killed += ended.killed
        assert ended.killed or ended.returncode == 0, ended.stderr
        seal_receipts()
        assert is_whole()
        make_receipts(5, start=5 * start)

    assert killed >= 8
    seal_receipts()
    assert len(positions()) == 5 * (killed + 1)
    assert is_whole()


# What is kept outside.


@pytest.fixture
def folder(key, settings, tmp_path):
    """Publish into a directory."""
    settings.RECEIPTS |= {"LOG_PUBLISH": str(tmp_path / "log")}
    return tmp_path / "log"


def test_the_directory_is_a_log_that_the_verifier_follows(folder, key, tmp_path, capsys):
    (tmp_path / "key").write_text(str(key.public))
    make_receipts(300)
    seal_receipts()
    (tmp_path / "old").write_text((folder / "checkpoint").read_text())
    make_receipts(230, start=300)

    assert seal_receipts().published == [str(folder)]

    assert verify.main(["--tiles", str(folder), "--key", str(tmp_path / "key"), "--since", str(tmp_path / "old")]) == 0
    assert "it begins with the 300 leaves" in capsys.readouterr().out
    assert (folder / "tile/0/001").stat().st_size == 256 * 32
    assert (folder / "tile/1/000.p/2").read_bytes()[:32] == second.mth([bytes.fromhex(one) for one in digests()[:256]])
    assert not list(folder.rglob(".new-*"))


def digests():
    return list(Leaf.objects.order_by("position").values_list("digest", flat=True))


@pytest.mark.parametrize("file", ["tile/0/000.p/5", "tile/entries/000.p/5", "checkpoint"])
def test_the_verifier_finds_what_was_changed_in_a_published_log(folder, key, tmp_path, file):
    (tmp_path / "key").write_text(str(key.public))
    make_receipts(5)
    seal_receipts()
    content = bytearray((folder / file).read_bytes())
    content[40] ^= 1
    (folder / file).write_bytes(content)

    assert verify.main(["--tiles", str(folder), "--key", str(tmp_path / "key")]) in (1, 2)


def test_a_checkpoint_that_was_not_published_is_published_by_the_next_run(folder, key):
    make_receipts(1)
    folder.parent.joinpath("log").write_text("a file where the directory should be")

    code, failed = printed("receipts_seal")
    folder.unlink()
    _, mended = printed("receipts_seal")

    assert (code, failed["sealed"], failed["published"], len(failed["errors"])) == (1, 1, [], 1)
    assert (mended["sealed"], mended["published"]) == (0, [str(folder)])
    assert printed("receipts_seal")[1]["published"] == []


def test_an_older_backup_is_not_continued(folder, key):
    """A restored database would fork the log."""
    make_receipts(3)
    seal_receipts()
    make_receipts(2, start=3)
    seal_receipts()
    as_owner(
        "DELETE FROM receipts_publication",
        "DELETE FROM receipts_checkpoint WHERE number = 2",
        "DELETE FROM receipts_leaf WHERE position = 4",
        "DELETE FROM receipts_leaf WHERE position = 3",
    )

    with pytest.raises(Inconsistent, match="an older backup was restored"):
        seal_receipts()

    assert (Leaf.objects.count(), Checkpoint.objects.count()) == (3, 1)
    found = run_checks(tags=[DOCTOR], include_deployment_checks=True, databases=["default"])
    assert "receipts.E045" in {one.id for one in found}
    assert printed("receipts_seal")[0] == 1


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers as the test says, and keeps what it was sent."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.path, body))
        code, text = self.server.answer(self.path, body)
        connections.close_all()  # each request has a thread of its own, which may have asked the database
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *given):
        pass


@pytest.fixture
def place():
    """A web server on loopback: `asked` and `answer`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked, server.answer = [], lambda path, body: (200, "")
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_url_is_sent_each_checkpoint_until_it_takes_it(key, settings, place):
    settings.RECEIPTS |= {"LOG_PUBLISH": f"{place.url}/hook"}
    make_receipts(1)
    place.answer = lambda path, body: (503, "later")

    assert seal_receipts().errors
    place.answer = lambda path, body: (200, "")
    assert seal_receipts().published == [f"{place.url}/hook"]
    assert seal_receipts().published == []

    note = Checkpoint.objects.get().note
    assert place.asked == [("/hook", note)] * 2
    assert Publication.objects.get().target == f"{place.url}/hook"


def witness(place, seen):
    """Answer as C2SP tlog-witness demands: check the consistency proof, then cosign."""

    def answer(path, body):
        head, _, note = body.partition("\n\n")
        old, *proof = head.split("\n")
        checkpoint = Head.parse(Note.parse(note).text)
        if int(old.removeprefix("old ")) != seen["size"]:
            return 409, f"{seen['size']}\n"
        entries = [bytes.fromhex(one) for one in digests()[: checkpoint.size]]
        expected = second.proof(seen["size"], entries) if 0 < seen["size"] < checkpoint.size else []
        if proof != [second.base64.b64encode(one).decode() for one in expected]:
            return 422, ""
        seen["size"] = checkpoint.size
        return 200, f"{cosigned_by_a_witness(Note.parse(note).text)[1]}\n"

    place.answer = answer


def test_a_witness_cosigns_what_only_grows(key, settings, place, folder):
    known, _ = cosigned_by_a_witness("x\n")
    settings.RECEIPTS |= {"LOG_KEYS": f"{key.export()} {known}", "LOG_WITNESSES": place.url}
    seen = {"size": 0}
    witness(place, seen)
    make_receipts(3)
    assert seal_receipts().cosigned_by == [known.name]
    make_receipts(4, start=3)
    assert seal_receipts().cosigned_by == [known.name]
    Cosignature.objects.all().delete()  # what it has seen last must be asked for
    make_receipts(1, start=7)

    report = seal_receipts()

    assert (report.cosigned_by, report.errors, seen["size"]) == ([known.name], [], 8)
    assert {path for path, _ in place.asked} == {"/add-checkpoint"}
    assert second.has_signed((folder / "checkpoint").read_text(), str(known))
    assert second.is_sealed(make_proof("CHG-0001", "default"), str(known))
    assert seal_receipts().cosigned_by == []


def test_a_cosignature_by_an_unknown_key_is_not_kept(key, settings, place):
    settings.RECEIPTS |= {"LOG_WITNESSES": place.url}
    witness(place, {"size": 0})
    make_receipts(1)

    report = seal_receipts()

    assert (report.cosigned_by, Cosignature.objects.count()) == ([], 0)
    assert "no cosignature by a known key" in report.errors[0]


def test_a_file_brings_the_cosignatures_of_a_checkpoint(key, settings, tmp_path):
    known, _ = cosigned_by_a_witness("x\n")
    settings.RECEIPTS |= {"LOG_KEYS": f"{key.export()} {known}"}
    make_receipts(1)
    seal_receipts()
    note = Note.parse(Checkpoint.objects.get().note)
    (tmp_path / "signed").write_text(str(Note(note.text, (cosigned_by_a_witness(note.text)[1],))), encoding="utf-8")

    code, answer = printed("receipts_seal", "--witness", str(tmp_path / "signed"))

    assert (code, answer["cosigned_by"]) == (0, [known.name])
    make_receipts(1, start=1)
    assert printed("receipts_seal", "--witness", str(tmp_path / "signed"))[0] == 1  # of an older checkpoint


# Commands, the doctor, the metric, the job.


def test_a_key_is_made_and_kept_for_its_owner_only(tmp_path, settings):
    file = tmp_path / "receipts.key"

    _, made = printed("receipts_key", "new", "example.com/receipts", "--file", str(file))
    settings.RECEIPTS = {"LOG_KEY_FILE": str(file)}
    _, shown = printed("receipts_key", "show")

    assert file.stat().st_mode & 0o777 == 0o600
    assert PublicKey.parse(made["public"]) == load_keys().signing[0].public
    assert shown["keys"] == [{"key": made["public"], "signs": True, "witness": False}]
    assert "private" not in made
    assert printed("receipts_key", "new")[0] == 1


def test_the_proof_of_a_receipt_is_written_beside_it(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_receipt("A/1", ids=[1])
    assert printed("inspect_change", "A/1", "--proof") == (
        1,
        {"error": "'A/1' is not yet sealed; run manage.py receipts_seal."},
    )
    seal_receipts()

    code, answer = printed("inspect_change", "A/1", "--proof")
    out = StringIO()
    call_command("inspect_change", "A/1", "--proof", "--output", "-", stdout=out)

    assert (code, answer["proof"]) == (0, "A_1.tlog-proof")
    assert second.is_sealed((tmp_path / "A_1.tlog-proof").read_text(encoding="utf-8"), str(key.public))
    assert out.getvalue() == (tmp_path / "A_1.tlog-proof").read_text(encoding="utf-8")


def test_the_doctor_and_the_metric_watch_that_sealing_goes_on(key):
    assert watch.unsealed_s("default") == 0
    make_receipt("OLD", ids=[1])

    assert watch.unsealed_s("default") > 25 * 3600
    assert "receipts.W044" in {one.id for one in watch.check_log(["default"])}
    seal_receipts()
    assert watch.unsealed_s("default") == 0
    assert [one.id for one in watch.check_log(["default"])] == []


@pytest.mark.parametrize(
    ("receipts", "found"),
    [
        ({"LOG_KEYS": "nonsense"}, ["receipts.E040"]),
        ({"LOG_KEY_FILE": "/nowhere/at/all"}, ["receipts.E040"]),
        ({"LOG_WITNESSES": "https://witness.example"}, ["receipts.E042"]),
        ({}, []),
    ],
)
def test_the_doctor_looks_at_the_keys(settings, receipts, found):
    settings.RECEIPTS = receipts

    assert [one.id for one in watch.check_keys()] == found


def test_the_doctor_says_when_nobody_knows_the_key_of_the_newest_checkpoint(key, settings):
    make_receipts(1)
    seal_receipts()
    settings.RECEIPTS = {}

    assert "receipts.W046" in {one.id for one in watch.check_log(["default"])}


def test_whoever_runs_for_good_seals_too(key, monkeypatch):
    make_receipts(2)
    monkeypatch.setattr(jobs, "_last_run", {})
    times = iter([0.0, 1.0, watch.EVERY_S + 1])

    done = [list(jobs.run_jobs(clock=lambda: next(times))) for _ in range(3)]

    assert [[name for name, error in one if not error] for one in done] == [["receipts_seal"], [], ["receipts_seal"]]
    assert len(positions()) == 2


def test_a_job_that_fails_keeps_no_other_from_running(monkeypatch):
    monkeypatch.setattr(jobs, "_last_run", {})
    monkeypatch.setattr(jobs, "_registered", {})
    ran = []
    jobs.register(jobs.Job(name="a", every_s=1, run=lambda is_stopping: 1 / 0))
    jobs.register(jobs.Job(name="b", every_s=1, run=ran.append))

    found = dict(jobs.run_jobs())

    assert isinstance(found["a"], ZeroDivisionError)
    assert (found["b"], len(ran)) == (None, 1)


def test_before_and_after_of_each_field_are_sealed(key, tmp_path):
    """A kind that names its fields."""
    row = make_price()
    apply_price(price_target(row))
    seal_receipts()

    proof = make_proof("CHG-1", "default")
    text = read_entries(["CHG-1"], "default")["CHG-1"].text

    assert '"price":{"after":"12.50","before":"10.00"}' in text
    assert '"set:price":"12.50"' in text
    assert second.is_sealed(proof, str(key.public))
    (tmp_path / "proof").write_text(proof, encoding="utf-8")
    (tmp_path / "key").write_text(str(key.public))
    assert verify.main([str(tmp_path / "proof"), "--key", str(tmp_path / "key")]) == 0
    assert is_whole()


def test_author_and_approver_of_a_plan_are_sealed(key):
    make_receipt("CHG-1", ids=[1], author="olga", approver="piotr")
    seal_receipts()

    as_owner("UPDATE receipts_changes SET approver = 'mallory'")

    assert [one.problem for one in audit_log("default", keys=load_keys()).findings] == ["receipt_changed"]
