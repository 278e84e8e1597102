"""For tests of programs that use Drumbeat: `Kit` runs an app on a temporary store, with time that the test moves.

async def test_a_declined_card_is_tried_again(drumbeat):       # the fixture of the pytest plugin is this class
    async with drumbeat(shop.app, at="2026-03-01T08:00Z") as kit:
        await shop.checkout(order=7)
        kit.assert_enqueued(shop.charge, args=(7,))
        await kit.run_until_idle()
        await kit.advance("1h")
        assert await kit.result(shop.charge) == "paid"
"""

from drumbeat.testing.kit import Kit
from drumbeat.testing.virtual_clock import VirtualClock

__all__ = ["Kit", "VirtualClock"]
