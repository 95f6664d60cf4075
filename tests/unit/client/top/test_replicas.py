"""Every replica behind a name is asked at its own address."""

from __future__ import annotations

from contextlib import closing

from skipstone_client.top import addresses
from skipstone_client.top.replicas import Replicas
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import Unavailable


class Replica:
    """A client that knows only who it is."""

    def __init__(self, address: str, who: Credentials) -> None:
        self.address = address
        self.who = who
        self.closed = False

    def ask(self) -> str:
        if self.address == "dead:1":
            raise Unavailable("it is down")
        return f"{self.address} by {self.who.tls_server_name}"

    def close(self) -> None:
        self.closed = True


def test_each_answers_or_tells_why_not_and_shows_the_certificate_of_the_name() -> None:
    asked = Replicas("dns:///name:1", Replica, None, lambda target: ("a:1", "dead:1"))
    with closing(asked):
        answers = asked.ask(Replica.ask)
    assert list(answers) == ["a:1", "dead:1"]
    assert answers["a:1"] == "a:1 by name"
    assert isinstance(answers["dead:1"], Unavailable)


def test_a_name_that_is_unknown_is_asked_as_it_is() -> None:
    def resolve(target: str) -> tuple[str, ...]:
        raise Unavailable("no such host")

    asked = Replicas("name:1", Replica, Credentials(tls_server_name="its own"), resolve)
    with closing(asked):
        assert asked.ask(Replica.ask) == {"name:1": "name:1 by its own"}


def test_connections_to_replicas_that_left_are_closed(monkeypatch) -> None:
    monkeypatch.setattr(addresses, "LOOK_UP_EVERY_S", 0.001)
    known = [("a:1", "b:1")]
    opened: dict[str, Replica] = {}

    def opening(address: str, who: Credentials) -> Replica:
        return opened.setdefault(address, Replica(address, who))

    with closing(Replicas("name:1", opening, None, lambda target: known[-1])) as asked:
        assert len(asked.ask(Replica.ask)) == 2
        known.append(("a:1",))
        while len(asked.ask(Replica.ask)) == 2:
            pass
        assert (opened["a:1"].closed, opened["b:1"].closed) == (False, True)
