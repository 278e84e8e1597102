from drumbeat.core.instance import Peer
from drumbeat.core.observer import Observer
from drumbeat.ids import InstanceId

A = InstanceId("a")
B = InstanceId("b")


def observer() -> Observer:
    return Observer(dead_after=10, max_gap=5)


def dead_after_looks(watch: Observer, looks: list[tuple[float, list[Peer]]]) -> list[InstanceId]:
    found: list[InstanceId] = []
    for moment, peers in looks:
        found += [peer.id for peer in watch.find_dead(peers, moment, moment)]
    return found


def test_a_heart_that_stands_still_for_ten_seconds_is_dead() -> None:
    looks = [(float(second), [Peer(A, 7)]) for second in range(11)]
    assert dead_after_looks(observer(), looks) == [A]


def test_a_heart_that_beats_is_alive() -> None:
    looks = [(float(second), [Peer(A, second // 9)]) for second in range(60)]
    assert dead_after_looks(observer(), looks) == []


def test_after_a_gap_in_its_own_beats_an_observer_counts_anew() -> None:
    looks = [(float(second), [Peer(A, 7)]) for second in range(9)]
    looks += [(20.0 + second, [Peer(A, 7)]) for second in range(10)]
    assert dead_after_looks(observer(), looks) == []


def test_after_a_failed_beat_an_observer_counts_anew() -> None:
    watch = observer()
    dead_after_looks(watch, [(float(second), [Peer(A, 7)]) for second in range(9)])
    watch.reset()
    assert dead_after_looks(watch, [(9.0 + second, [Peer(A, 7)]) for second in range(10)]) == []


def test_a_slow_answer_does_not_lengthen_what_was_seen() -> None:
    watch = observer()
    watch.find_dead([Peer(A, 7)], 0.0, 4.0)
    watch.find_dead([Peer(A, 7)], 8.0, 9.0)
    assert watch.find_dead([Peer(A, 7)], 13.5, 14.0) == []
    assert watch.find_dead([Peer(A, 7)], 14.0, 14.1) == [Peer(A, 7)]


def test_one_that_comes_back_with_another_count_is_counted_anew() -> None:
    watch = observer()
    dead_after_looks(watch, [(float(second), [Peer(A, 7), Peer(B, second)]) for second in range(9)])
    assert dead_after_looks(watch, [(9.0 + second, [Peer(A, 8), Peer(B, 9 + second)]) for second in range(10)]) == []
