"""Sources in the store: claims exclude each other, dead letters are bounded, URLs are sealed."""

from __future__ import annotations

from dispatcher.store import sources
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.sources import Letter, Source
from tests.store.conftest import Engine


def source(id: str, created: int = 0) -> Source:
    return Source(id, "", "topic", "nats://h/S", "edn-1", "", "ann", "{}", created)


def test_sources_are_stored_with_a_sealed_url_and_deleted_with_their_letters(engine: Engine) -> None:
    url = "nats://ann:s3cret@h/S"

    async def work(log: Log) -> None:
        for place, id in enumerate(("b", "a")):
            made = source(id, place)
            await log.submit(lambda transaction, made=made: sources.insert(transaction, made, url))
        assert [one.id for one in await log.reading(sources.all_sources)] == ["b", "a"]
        assert await log.reading(sources.open_url, "a") == url
        assert await log.reading(sources.open_url, "none") is None
        assert await log.reading(sources.count, "") == 2
        assert await log.reading(sources.count, "other") == 0
        letters = [Letter("m", "why", b"\x00\xff", 2)]
        await log.submit(lambda transaction: sources.insert_letters(transaction, "a", letters))

    async def again(log: Log) -> None:
        [letter] = await log.reading(sources.letters, "a", 10)
        assert (letter.message, letter.reason, letter.body, letter.size) == ("m", "why", b"\x00\xff", 2)
        assert await log.reading(sources.count_letters) == {"a": 1}
        assert await log.submit(lambda transaction: sources.delete(transaction, "a"))
        assert not await log.submit(lambda transaction: sources.delete(transaction, "a"))
        assert await log.reading(sources.count_letters) == {}
        assert await log.reading(sources.find, "a") is None

    engine.run(work)
    engine.run(again)


def test_one_dispatcher_has_a_source_until_its_claim_is_over(engine: Engine) -> None:
    async def work(log: Log) -> None:
        async def claim(owner: str, *ids: str) -> list[str]:
            def operation(transaction: Transaction) -> list[str]:
                return sources.claim(transaction, ids, owner, 8.0)

            return sorted(await log.submit(operation))

        for id in ("a", "b"):
            made = source(id)
            await log.submit(lambda transaction, made=made: sources.insert(transaction, made, "u"))
        assert await claim("first", "a") == ["a"]
        assert await claim("second", "a", "b") == ["b"]
        engine.now += 7
        assert await claim("first", "a", "b") == ["a"]  # renewed
        engine.now += 2
        assert await claim("third", "a", "b") == ["b"]  # not renewed by the second
        engine.now += 9
        assert await claim("second", "a", "b") == ["a", "b"]

    engine.run(work)


def test_the_newest_letters_are_kept_and_paged(engine: Engine) -> None:
    async def work(log: Log) -> None:
        dropped = 0
        for start in range(0, sources.LETTERS + 30, 103):
            batch = [Letter(f"m{start + n}", "why", b"", 0) for n in range(103)]
            dropped += await log.submit(
                lambda transaction, batch=batch: sources.insert_letters(transaction, "a", batch)
            )
        await log.submit(lambda transaction: sources.insert_letters(transaction, "b", batch[:1]))
        total = -(-(sources.LETTERS + 30) // 103) * 103
        assert dropped == total - sources.LETTERS
        page = await log.reading(sources.letters, "a", 10)
        assert [one.message for one in page] == [f"m{total - 1 - n}" for n in range(10)]
        following = await log.reading(sources.letters, "a", 2, page[-1].id)
        assert [one.message for one in following] == [f"m{total - 11}", f"m{total - 12}"]
        assert await log.reading(sources.count_letters) == {"a": sources.LETTERS, "b": 1}
        assert (
            await log.submit(lambda transaction: sources.delete_letters(transaction, "a")) == sources.LETTERS
        )

    engine.run(work)
