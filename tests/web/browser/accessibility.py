"""What axe finds on a page that would be in somebody's way."""

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

AXE = Axe()
GRAVE = {"serious", "critical"}


async def violations(page: Page, **options: object) -> list[str]:
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(AXE.axe_script)
    found = await page.evaluate(
        "async (options) => (await axe.run(options)).violations", {"resultTypes": ["violations"], **options}
    )
    return [
        f"{each['impact']} {each['id']}: {node['target']} {node['html'][:160]}"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"][:3]
    ]
